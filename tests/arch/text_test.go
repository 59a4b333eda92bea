package arch_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The patterns are written so that they do not match themselves.
var (
	// machine is a path of a build machine. A home folder in a text to train or
	// test on is nobody's.
	machine = regexp.MustCompile(`(^|["'` + "`" + `\s=(:])/(work|root)/[A-Za-z0-9_.-]+`)
	// outside is a path that leaves the repository for what was written for it.
	outside = regexp.MustCompile(`\.\./shared[/"'` + "`" + `]`)
	// registries are asked through their clients, which know where they are.
	registries = regexp.MustCompile(`registry\.npmjs\.[a-z]|pypi\.[o]rg|files\.pythonhosted\.[o]rg|proxy\.golang\.[o]rg`)
)

func TestNoFileLeavesTheRepository(t *testing.T) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skip("not in a git repository")
	}
	for name := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		text, err := os.ReadFile(filepath.Join(root, string(name)))
		if os.IsNotExist(err) {
			continue // removed and not yet committed
		}
		require.NoError(t, err)
		if bytes.IndexByte(text, 0) >= 0 {
			continue // not text
		}
		for what, pattern := range map[string]*regexp.Regexp{
			"a path of one machine": machine, "a path outside the repository": outside, "the address of a registry": registries,
		} {
			if at := pattern.FindIndex(text); at != nil {
				line := 1 + bytes.Count(text[:at[0]], []byte("\n"))
				require.Failf(t, "a file that works only in one place", "%s:%d names %s: %q", name, line, what, text[at[0]:at[1]])
			}
		}
	}
}
