package prompt_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/family/familytest"
	"turnlog.dev/tokenizer/prompt"
)

// marked finds what a template's author means to be one token.
var marked = regexp.MustCompile(`<\|[^|\s<>'"]+\|>|<｜[^｜\s<>'"]+｜>|</?(?:think|tool_call|tool_response|arg_key|arg_value|start_of_turn|end_of_turn|bos|s)>|` +
	`\[/?(?:INST|TOOL_CALLS|AVAILABLE_TOOLS|TOOL_RESULTS|SYSTEM_PROMPT|THINK|CALL_ID|ARGS|TOOL_CONTENT|gMASK)\]|<sop>|\]~!?b\[?\]?|\[e~\[|</?minimax:tool_call>|｜DSML｜`)

// special are the tokens that end a turn or are never written as text.
var special = regexp.MustCompile(`^(<\||<｜(begin|end)|\[|</?s>|<(start|end)_of_turn>|<bos>|\])`)

// TestTemplatesOfRealModels runs every conversation with the templates in
// $PROMPT_TEMPLATES, in place of the stand-ins: folders of *.jinja files,
// separated by colons.
func TestTemplatesOfRealModels(t *testing.T) {
	if os.Getenv("PROMPT_TEMPLATES") == "" {
		t.Skip("PROMPT_TEMPLATES names no folder of templates")
	}
	for _, dir := range filepath.SplitList(os.Getenv("PROMPT_TEMPLATES")) {
		files, err := filepath.Glob(filepath.Join(dir, "*.jinja"))
		require.NoError(t, err)
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			t.Run(filepath.Base(file), func(t *testing.T) { real(t, file, string(source)) })
		}
	}
}

func real(t *testing.T, file, source string) {
	c := familytest.Checkpoint{Name: file, Source: source, Thinks: true, Calls: true, Parallel: true, Kwargs: `{"enable_thinking": true, "thinking": true}`}
	for _, m := range marked.FindAllString(source, -1) {
		if slices.Contains(c.Special, m) || slices.Contains(c.Marks, m) {
			continue
		}
		if special.MatchString(m) {
			c.Special = append(c.Special, m)
		} else {
			c.Marks = append(c.Marks, m)
		}
	}
	c.Family = family.Detect(family.Evidence{Template: source, Added: c.Tokenizer().Added()})
	end := append(slices.Clone(c.Family.Stops), "<|eos|>")[0]
	for _, token := range []string{"<|bos|>", end} {
		if !slices.Contains(c.Special, token) {
			c.Special = append(c.Special, token)
		}
	}
	c.Names = chat.SpecialTokens{"bos_token": "<|bos|>", "eos_token": end}
	c.Name += " " // another vocabulary
	m := c.Model()
	if _, err := prompt.New(m); err != nil {
		t.Skipf("%v", err)
	}
	r := newRig(t, c, prompt.Keep)
	t.Logf("%s %+v", c.Family.Name, r.a.Ability())
	counts := map[string]int{}
	r.outcomes(func(name, outcome string) {
		kind, _, _ := strings.Cut(outcome, ":")
		counts[kind]++
		// A conversation may not fit the format, but no prompt is wrong.
		t.Logf("%s: %s", name, outcome)
		require.NotContains(t, kind, "WRONG", "%s: %s", name, outcome)
	})
	t.Log(counts)
}
