package prompt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/bpe"
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
// separated by colons. Their special tokens are added to the demo vocabulary.
func TestTemplatesOfRealModels(t *testing.T) {
	if os.Getenv("PROMPT_TEMPLATES") == "" {
		t.Skip("PROMPT_TEMPLATES names no folder of templates")
	}
	for _, dir := range filepath.SplitList(os.Getenv("PROMPT_TEMPLATES")) {
		files, err := filepath.Glob(filepath.Join(dir, "*.jinja"))
		require.NoError(t, err)
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) { realModel(t, file, "") })
		}
	}
}

// TestRealModels does the same for the models of the table in README.md, with
// their own vocabularies where those can be had: $PROMPT_MODELS is lines of
// name=tokenizer=template, where the tokenizer's file may be missing. Each
// model's row must be in the table; -update writes all of it.
func TestRealModels(t *testing.T) {
	if os.Getenv("PROMPT_MODELS") == "" {
		t.Skip("PROMPT_MODELS names no models")
	}
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	begin, rest, ok := strings.Cut(string(readme), "<!-- table real -->\n")
	require.True(t, ok)
	old, after, ok := strings.Cut(rest, "<!-- end -->")
	require.True(t, ok)
	rows := "| model | family | vocabulary | `=` | `kept` | `text` | `branch` | `refused` | not in the format |\n" + strings.Repeat("| --- ", 9) + "|\n"
	for line := range strings.Lines(os.Getenv("PROMPT_MODELS")) {
		name, files, ok := strings.Cut(strings.TrimSpace(line), "=")
		require.True(t, ok, line)
		tokens, template, ok := strings.Cut(files, "=")
		require.True(t, ok, line)
		t.Run(name, func(t *testing.T) {
			family, counts := realModel(t, template, tokens)
			vocabulary := "its own"
			if tokens == "" {
				vocabulary = "stand-in"
			}
			row := fmt.Sprintf("| %s | `%s` | %s |", name, family, vocabulary)
			said := 0
			for _, kind := range []string{"=", "kept", "text", "branch", "refused"} {
				row += fmt.Sprintf(" %d |", counts[kind])
				said += counts[kind]
				delete(counts, kind)
			}
			other := 0
			for _, n := range counts {
				other += n
			}
			require.Positive(t, said)
			row += fmt.Sprintf(" %d |\n", other)
			if rows += row; !*update {
				require.Contains(t, old, row, "tests/parsers/run.sh -update writes the table")
			}
		})
	}
	if *update && !t.Failed() {
		require.NoError(t, os.WriteFile("README.md", []byte(begin+"<!-- table real -->\n"+rows+"<!-- end -->"+after), 0o644))
	}
}

// realModel takes all turns of a model and counts what came of them.
func realModel(t *testing.T, template, tokens string) (string, map[string]int) {
	source, err := os.ReadFile(template)
	require.NoError(t, err)
	c := familytest.Checkpoint{
		Name: template, Source: string(source), Thinks: true, Calls: true, Parallel: true,
		Kwargs: `{"enable_thinking": true, "thinking": true}`,
	}
	if tokens == "" {
		mark(&c)
	} else {
		c.Own = load(t, tokens)
		c.Family = family.Detect(family.Evidence{Template: c.Source, Added: c.Own.Added()})
		c.Names = chat.SpecialTokens{"bos_token": c.Own.Added()[0].Content, "eos_token": append(c.Family.Stops, "")[0]}
	}
	if _, err := prompt.New(c.Model()); err != nil {
		t.Skipf("%v", err)
	}
	r := newRig(t, c, prompt.Keep)
	t.Logf("family %s %+v", c.Family.Name, r.a.Ability())
	counts := map[string]int{}
	r.outcomes(func(name, outcome string) {
		kind, _, _ := strings.Cut(outcome, ":")
		counts[kind]++
		t.Logf("%s: %s", name, outcome)
		// A conversation may not fit the format, but no prompt is wrong.
		require.NotContains(t, kind, "WRONG", "%s: %s", name, outcome)
	})
	t.Logf("outcomes %v", counts)
	t.Logf("hostile %v", r.attacked(t, 100))
	return c.Family.Name, counts
}

// mark takes the special tokens from the template.
func mark(c *familytest.Checkpoint) {
	add := func(token string) {
		if slices.Contains(c.Special, token) || slices.Contains(c.Marks, token) {
			return
		}
		if special.MatchString(token) {
			c.Special = append(c.Special, token)
		} else {
			c.Marks = append(c.Marks, token)
		}
	}
	for _, token := range marked.FindAllString(c.Source, -1) {
		add(token)
	}
	c.Name = "as written: " + c.Name
	c.Family = family.Detect(family.Evidence{Template: c.Source, Added: c.Tokenizer().Added()})
	end := append(c.Family.Stops, "<|eos|>")[0]
	c.Name = strings.TrimPrefix(c.Name, "as written: ")
	add("<|bos|>")
	add(end)
	c.Names = chat.SpecialTokens{"bos_token": "<|bos|>", "eos_token": end}
}

func load(t *testing.T, file string) tokenizer.Tokenizer {
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var tok tokenizer.Tokenizer
	switch name := filepath.Base(file); {
	case name == "tiktoken.model":
		config, err := os.ReadFile(filepath.Join(filepath.Dir(file), "tokenizer_config.json"))
		require.NoError(t, err)
		added, err := bpe.AddedFromConfig(config)
		require.NoError(t, err)
		tok, err = bpe.LoadTiktoken(data, bpe.PatternKimi, added)
		require.NoError(t, err)
	case strings.HasPrefix(name, "tekken"):
		tok, err = bpe.LoadTekken(data)
		require.NoError(t, err)
	default:
		tok, err = bpe.Load(data)
		require.NoError(t, err)
	}
	return tok
}
