// Command parsers compares tokenizer/parse with the parsers of inference
// servers, which read text. It takes replies that the families' templates
// write, for random answers, and the replies of parse's golden file.
//
// A reply that a template wrote follows its format: a flag on it is a failure.
// On replies that follow their format both must say the same: reasoning and
// content but for white space around them, names of calls, and arguments as
// JSON values. On replies that do not, servers repair and guess, each in its
// own way, where parse does not: such differences are counted and shown with
// -v, and are no failures.
//
// run.sh installs the servers' packages and runs this.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"time"

	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer/family/familytest"
	"turnlog.dev/tokenizer/parse"
	"turnlog.dev/tokenizer/prompt"
)

// names are an engine's parsers for a model.
type names struct {
	Reasoning string `json:"reasoning,omitempty"`
	Calls     string `json:"calls,omitempty"`
}

// parsers are named as the engines' command lines name them. vLLM reads gpt-oss
// with a library that fetches its vocabulary over the network: it is not asked.
var parsers = map[string]map[string]names{
	"sglang": {
		"qwen2.5": {"", "qwen25"}, "qwen3-hybrid": {"qwen3", "qwen25"}, "qwen3-instruct-2507": {"", "qwen25"},
		"qwen3-thinking-2507": {"qwen3", "qwen25"}, "qwen3-coder": {"", "qwen3_coder"}, "qwen3.5": {"qwen3", "qwen3_coder"},
		"nemotron-3": {"nemotron_3", "qwen3_coder"}, "glm-4.5": {"glm45", "glm45"}, "glm-4.7": {"glm45", "glm47"},
		"gpt-oss": {"gpt-oss", "gpt-oss"}, "deepseek-v3": {"", "deepseekv3"}, "deepseek-v3.1": {"deepseek-v3", "deepseekv31"},
		"deepseek-v3.2": {"deepseek-v3", "deepseekv32"}, "deepseek-v4": {"deepseek-v4", "deepseekv4"}, "kimi-k2": {"kimi_k2", "kimi_k2"}, "minimax-m2": {"minimax", "minimax-m2"},
		"llama-3.1": {"", "llama3"}, "mistral-7b-v0.3": {"", "mistral"}, "mistral-small-3.2": {"", "mistral"},
	},
	"vllm": {
		"qwen2.5": {"", "hermes"}, "qwen3-hybrid": {"qwen3", "hermes"}, "qwen3-instruct-2507": {"", "hermes"},
		"qwen3-thinking-2507": {"qwen3", "hermes"}, "qwen3-coder": {"", "qwen3_coder"}, "qwen3.5": {"qwen3", "qwen3_coder"},
		"nemotron-3": {"nemotron_v3", "qwen3_coder"}, "glm-4.5": {"glm45", "glm45"}, "glm-4.7": {"glm47", "glm47"},
		"deepseek-v3": {"", "deepseek_v3"}, "deepseek-v3.1": {"", "deepseek_v31"}, "kimi-k2": {"kimi_k2", "kimi_k2"}, "minimax-m2": {"minimax_m2", "minimax_m2"},
		"llama-3.1": {"", "llama3_json"}, "deepseek-v3.2": {"deepseek_r1", "deepseek_v32"}, "deepseek-v4": {"deepseek_v4", "deepseek_v4"},
		"mistral-7b-v0.3": {"", "mistral"}, "mistral-small-3.2": {"", "mistral"},
	},
}

// request is what oracle.py reads.
type request struct {
	Text string `json:"text"`
	// Opened: the prompt has opened the thinking.
	Opened bool            `json:"opened"`
	Names  names           `json:"names"`
	Tools  json.RawMessage `json:"tools"`
	// Vocabulary are the added tokens.
	Vocabulary map[string]uint32 `json:"vocabulary"`
	IDs        []uint32          `json:"ids"`
}

// answer is what oracle.py says.
type answer struct {
	Reasoning string      `json:"reasoning"`
	Content   string      `json:"content"`
	Calls     [][2]string `json:"calls"`
	Error     string      `json:"error"`
}

type testCase struct {
	name, model string
	text        string
	prompt      string
	want        parse.Reply
	// written: the template wrote it, so it follows the format.
	written bool
}

func main() {
	verbose := flag.Bool("v", false, "show the differences on replies that do not follow their format")
	rounds := flag.Int("n", 60, "random replies for each model")
	python := flag.String("python", "python3", "interpreter that has the packages oracle.py needs")
	golden := flag.String("golden", "../tokenizer/parse/testdata/replies.json", "more replies")
	flag.Parse()
	cases, err := collect(*rounds, *golden)
	if err != nil {
		fmt.Fprintln(os.Stderr, "parsers:", err)
		os.Exit(2)
	}
	passed, failed := 0, 0
	for _, arg := range flag.Args() {
		engine, folder, _ := strings.Cut(arg, "=")
		p, f, s, err := compare(engine, folder, *python, cases, *verbose)
		if err != nil {
			fmt.Fprintln(os.Stderr, "parsers:", err)
			os.Exit(2)
		}
		fmt.Printf("%s: %d the same, %d not, %d not comparable\n", engine, p, f, s)
		passed, failed = passed+p, failed+f
	}
	// What cannot be compared was not skipped: -v names it.
	fmt.Printf("%d passed, %d failed, 0 skipped\n", passed, failed)
	if failed > 0 || passed == 0 {
		os.Exit(1)
	}
}

func checkpoint(name string) (familytest.Checkpoint, bool) {
	all := familytest.Checkpoints()
	i := slices.IndexFunc(all, func(c familytest.Checkpoint) bool { return c.Name == name })
	if i < 0 {
		return familytest.Checkpoint{}, false
	}
	return all[i], true
}

var tools = []message.Definition{{Name: "weather", Raw: []byte(`{"type":"function","function":{"name":"weather","parameters":{` +
	`"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},"tags":{"type":"array"},"at":{"type":"object"}}}}}`)}}

// collect makes the cases.
func collect(rounds int, golden string) (all []testCase, err error) {
	for _, c := range familytest.Checkpoints() {
		a, err := prompt.New(c.Model())
		if err != nil {
			return nil, err
		}
		for seed := range rounds {
			d := rand.New(rand.NewPCG(uint64(seed), 3))
			if t, ok := random(d, c, a); ok {
				t.name = fmt.Sprintf("random %d", seed)
				all = append(all, t)
			}
		}
	}
	raw, err := os.ReadFile(golden)
	if err != nil {
		return nil, err
	}
	var list []struct {
		Name, Model, Prompt, Text string
		Want                      parse.Reply
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	for _, g := range list {
		all = append(all, testCase{name: g.Name, model: g.Model, text: g.Text, prompt: g.Prompt, want: g.Want})
	}
	return all, nil
}

// random is a reply as the template writes it.
func random(d *rand.Rand, c familytest.Checkpoint, a *prompt.Assembler) (testCase, bool) {
	user := message.Message{Role: message.User, Content: message.TextContent("?")}
	said := message.Message{Role: message.Assistant, Content: message.TextContent(sentence(d))}
	if c.Thinks && d.IntN(4) > 0 {
		said.Reasoning = sentence(d)
	}
	for i := range d.IntN(3) {
		if !c.Calls || i > 0 && !c.Parallel {
			break
		}
		if c.Alone || d.IntN(2) == 0 {
			said.Content.Text = ""
		}
		said.Calls = append(said.Calls, message.Call{
			ID: fmt.Sprintf("abcdefgh%d", i), ModelID: map[bool]string{true: fmt.Sprintf("functions.weather:%d", i)}[c.Name == "kimi-k2"],
			Name: "weather", Arguments: fmt.Sprintf(`{"city": %s, "days": %d, "tags": [%s, 1.5, null], "at": {"x": true}}`,
				quoted(sentence(d)), d.IntN(9), quoted(sentence(d))),
		})
	}
	o := prompt.Options{Time: time.Unix(0, 0)}
	if c.Kwargs != "" {
		o.Kwargs = []byte(c.Kwargs)
	}
	open, err1 := a.Text(message.Split([]message.Message{user}, tools), true, o)
	closed, err2 := a.Text(message.Split([]message.Message{user, said}, tools), false, o)
	text, ok := strings.CutPrefix(closed, open)
	if err1 != nil || err2 != nil || !ok {
		return testCase{}, false
	}
	if c.Name == "gpt-oss" {
		// The history names the recipient first, the model the channel.
		text = strings.ReplaceAll(text, " to=functions.weather<|channel|>commentary json", "<|channel|>commentary to=functions.weather <|constrain|>json")
	}
	conv := message.Split([]message.Message{user}, tools)
	root, err := a.Root(conv, o)
	if err != nil {
		return testCase{}, false
	}
	// What stands behind the turn's end is the template's.
	tok := c.Tokenizer()
	ids := tok.Encode(nil, text)
	if at := slices.IndexFunc(ids, func(id uint32) bool { return slices.Contains(a.StopTokens(), id) }); at >= 0 {
		ids = ids[:at+1]
		text = tok.Decode(ids)
	}
	p := a.Parser(root, conv)
	p.Push(ids)
	want, _ := p.Finish("stop")
	return testCase{model: c.Name, text: text, prompt: open, want: want, written: true}, true
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func sentence(d *rand.Rand) string {
	words := strings.Fields("so I think that the answer is 42. x\"é\" 日本 {x} ... done! don't <b> [1]")
	var b []string
	for range 1 + d.IntN(6) {
		b = append(b, words[d.IntN(len(words))])
	}
	return strings.Join(b, []string{" ", "\n", "\n\n"}[d.IntN(3)])
}

// compare has an engine read the cases.
func compare(engine, folder, python string, cases []testCase, verbose bool) (same, not, apart int, err error) {
	cmd := exec.Command(python, "parsers/oracle.py", engine, folder)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, 0, 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, 0, err
	}
	reader := bufio.NewReader(out)
	for _, c := range cases {
		cp, _ := checkpoint(c.model)
		n, ok := parsers[engine][c.model]
		if !ok {
			apart++
			continue
		}
		if c.written && len(c.want.Flags) > 0 {
			// We are the ones who misread it.
			not++
			fmt.Printf("FAIL %s, %s: flags %v on what the template writes\n  text %q\n", c.model, c.name, c.want.Flags, c.text)
			continue
		}
		theirs, err := ask(in, reader, c, cp, n)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("%s: %w", engine, err)
		}
		difference := differs(c.want, theirs)
		switch {
		case difference == "":
			same++
		case len(c.want.Flags) > 0 || knows(engine, c):
			apart++
			if verbose {
				fmt.Printf("%s, %s, %s: %s\n", engine, c.model, c.name, difference)
			}
		default:
			not++
			fmt.Printf("FAIL %s, %s, %s: %s\n  text %q\n", engine, c.model, c.name, difference, c.text)
		}
	}
	if err := in.Close(); err != nil {
		return 0, 0, 0, err
	}
	return same, not, apart, cmd.Wait()
}

func ask(in interface{ Write([]byte) (int, error) }, out *bufio.Reader, c testCase, cp familytest.Checkpoint, n names) (theirs answer, err error) {
	text := c.text
	for _, stop := range cp.Family.Stops {
		// Servers take the stop token off the text.
		if cut, ok := strings.CutSuffix(strings.TrimRight(text, "\n"), stop); ok && c.model != "gpt-oss" {
			text = cut
		}
	}
	text = strings.TrimLeft(text, " \n")
	if c.model == "gpt-oss" {
		text = "<|start|>assistant" + text
	}
	vocabulary := map[string]uint32{}
	for _, t := range cp.Tokenizer().Added() {
		vocabulary[t.Content] = t.ID
	}
	line, err := json.Marshal(request{
		Text: text, Opened: strings.LastIndex(c.prompt, "<think>") > strings.LastIndex(c.prompt, "</think>"), Names: n,
		Tools: message.AppendTools(nil, tools), Vocabulary: vocabulary, IDs: cp.Tokenizer().Encode(nil, text),
	})
	if err != nil {
		return theirs, err
	}
	if _, err = in.Write(append(line, '\n')); err != nil {
		return theirs, err
	}
	if line, err = out.ReadBytes('\n'); err != nil {
		return theirs, err
	}
	return theirs, json.Unmarshal(line, &theirs)
}

// differs says how two readings differ, "" if they do not.
func differs(ours parse.Reply, theirs answer) string {
	if theirs.Error != "" {
		return "it fails: " + theirs.Error
	}
	if a, b := strings.TrimSpace(ours.Reasoning), strings.TrimSpace(theirs.Reasoning); a != b {
		return fmt.Sprintf("reasoning %q, not %q", b, a)
	}
	if a, b := strings.TrimSpace(ours.Content), strings.TrimSpace(theirs.Content); a != b {
		return fmt.Sprintf("content %q, not %q", b, a)
	}
	if len(ours.Calls) != len(theirs.Calls) {
		return fmt.Sprintf("calls %q, not %q", theirs.Calls, ours.Calls)
	}
	for i, c := range ours.Calls {
		if theirs.Calls[i][0] != c.Name {
			return fmt.Sprintf("name %q, not %q", theirs.Calls[i][0], c.Name)
		}
		if !reflect.DeepEqual(decoded(theirs.Calls[i][1]), decoded(c.Arguments)) {
			return fmt.Sprintf("arguments %s, not %s", theirs.Calls[i][1], c.Arguments)
		}
	}
	return ""
}

func decoded(s string) (v any) {
	if json.Unmarshal([]byte(s), &v) != nil {
		return s
	}
	return v
}

// known are the replies that follow their format and that an engine reads
// otherwise, by engine and model, with * for all of them.
var known = map[string]map[string]string{
	"sglang qwen3-hybrid": {"nested braces in strings": "wants a line break behind <tool_call>"},
	"sglang kimi-k2":      {"calls keep their ids": "drops calls of tools that were not offered"},
	"sglang llama-3.1": {
		"a JSON answer": "drops an answer that is JSON but no call", "a JSON answer with a name": "the same",
	},
	"vllm mistral-small-3.2":   {"*": "knows no [CALL_ID]"},
	"sglang mistral-small-3.2": {"*": "knows no [CALL_ID]"},
	"vllm qwen3-hybrid": {
		"content": "takes a reply without </think> for thinking", "thinking closed by the prompt": "the same",
		"one line break before a call is the template's": "the same",
	},
	"sglang deepseek-v3": {"thinking of R1": "has another parser for R1"},
	"vllm deepseek-v3":   {"thinking of R1": "has another parser for R1"},
	"vllm deepseek-v3.1": {"thinking and a call": "is told by the request whether the model thinks"},
	"vllm kimi-k2":       {"calls keep their ids": "takes the name up to the first colon"},
	"vllm llama-3.1":     {"content": "takes a call anywhere in the text"},
	"sglang gpt-oss": {
		"a call, recipient first": "wants the channel first", "a preamble": "takes one message besides the analysis",
		"two finals": "the same", "json without the mark": "wants the mark",
	},
}

func knows(engine string, c testCase) bool {
	list := known[engine+" "+c.model]
	return list["*"] != "" || list[c.name] != ""
}
