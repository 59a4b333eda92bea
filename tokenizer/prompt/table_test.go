package prompt_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/tokenizer/family/familytest"
	"turnlog.dev/tokenizer/prompt"
)

var update = flag.Bool("update", false, "write the tables of README.md")

var columns = []string{
	"tool result", "user turn", "several tools", "out of order", "reasoning, tool", "reasoning, user",
	"cut off", "empty reply", "system inside", "part lists", "deferred tools", "late result", "changed tools", "changed arguments",
}

// table runs all trajectories with all checkpoints.
func table(t *testing.T, policy prompt.Policy) string {
	var b strings.Builder
	b.WriteString("| model | family | " + strings.Join(columns, " | ") + " |\n")
	b.WriteString(strings.Repeat("| --- ", len(columns)+2) + "|\n")
	for _, c := range familytest.Checkpoints() {
		fmt.Fprintf(&b, "| %s | `%s` |", c.Name, c.Family.Name)
		all := newRig(t, c, policy).outcomes(func(string, string) {})
		for _, column := range columns {
			seen := slices.Clone(all[column])
			if len(seen) > 1 {
				seen = slices.DeleteFunc(seen, func(s string) bool { return s == "-" })
			}
			slices.Sort(seen)
			b.WriteString(" " + strings.Join(seen, ", ") + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// The module's README leads to the tables, by headings that are there.
func TestTheTablesAreOneStepFromTheModulesREADME(t *testing.T) {
	module, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, heading := range []string{"What becomes of every turn", "Why a history must not be encoded again"} {
		require.Contains(t, string(module), "(prompt/README.md#"+strings.ReplaceAll(strings.ToLower(heading), " ", "-")+")")
		require.Contains(t, string(readme), "\n## "+heading+"\n")
	}
}

func TestREADMETellsWhatBecomesOfEveryTurn(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	text := string(readme)
	for _, policy := range []prompt.Policy{prompt.Keep, prompt.Vendor} {
		begin := fmt.Sprintf("<!-- table %s -->\n", policy)
		head, rest, ok := strings.Cut(text, begin)
		require.True(t, ok, "README.md has no %q", begin)
		old, tail, ok := strings.Cut(rest, "<!-- end -->")
		require.True(t, ok)
		if !*update {
			require.Equal(t, table(t, policy), old, "run: go test ./prompt -run README -update")
			continue
		}
		text = head + begin + table(t, policy) + "<!-- end -->" + tail
	}
	if *update {
		require.NoError(t, os.WriteFile("README.md", []byte(text), 0o644))
	}
}
