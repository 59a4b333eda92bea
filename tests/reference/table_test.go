package reference

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the repository's from here.
const root = "../.."

// TestTheTableNamesTestsThatExist: every behaviour and every hole has its row,
// and every row a test that is there or a word why it has none.
func TestTheTableNamesTestsThatExist(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "tests/parity/REFERENCE.md"))
	require.NoError(t, err)
	named := regexp.MustCompile("`([a-z0-9_/]+_test\\.go):((?:Test|Fuzz|Benchmark)[A-Za-z0-9_]+)`")
	rows := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		id := strings.TrimSpace(cells[0])
		if len(cells) != 3 || !regexp.MustCompile(`^[ABCD]?[0-9]+$`).MatchString(id) {
			continue
		}
		require.False(t, rows[id], "two rows of %s", id)
		rows[id] = true
		tests := named.FindAllStringSubmatch(cells[2], -1)
		for _, n := range tests {
			src, err := os.ReadFile(filepath.Join(root, n[1]))
			require.NoError(t, err, "row %s", id)
			if !bytes.Contains(src, []byte("func "+n[2]+"(")) {
				t.Errorf("row %s names %s, which is not in %s", id, n[2], n[1])
			}
		}
		require.True(t, len(tests) > 0 || strings.HasPrefix(strings.TrimSpace(cells[2]), "Does not apply: "), "row %s has neither a test nor a reason", id)
	}
	for _, series := range []struct {
		name string
		n    int
	}{{"", 75}, {"A", 7}, {"B", 17}, {"C", 5}} {
		for i := range series.n {
			require.True(t, rows[fmt.Sprint(series.name, i+1)], "no row of %s%d", series.name, i+1)
		}
	}
}
