// Package dialects holds what clients' requests become, as files: request in,
// what the log holds, what the engine is asked, response or stream out. The
// cases are failures that were reported for other gateways (bug-*), and the
// conversions of a reference corpus, rebuilt from its description (conv-*).
//
// A file begins with words about the case and with what must hold whatever the
// rest says:
//
//	must answer: TEXT          the last answer contains it
//	must not answer: TEXT
//	must prompt: TEXT          the last prompt does; must turn: likewise
//	template: system first     a template that takes no system message inside
//	window: 64                 the model's context; ping: 10s; deadline: 25s
//
// Then come the steps. "say" is what the engine will say, with words for how:
// cut, stop TEXT, cached N, after DURATION, spelled, fail CLASS. "ask" is a
// request: header lines, an empty line, the body. What follows an ask is
// written by "go test ./golden/dialects -update": the turns that it made, what
// the engine was asked, and the answer.
package dialects

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/dialect/dialecttest"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/tokenizer/demo"
)

var update = flag.Bool("update", false, "write what the cases give into their files")

func TestEveryCaseGivesWhatItsFileSays(t *testing.T) {
	files, err := filepath.Glob("cases/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			var got []byte
			synctest.Test(t, func(t *testing.T) { got = play(t, string(raw)) })
			if *update && !bytes.Equal(raw, got) {
				require.NoError(t, os.WriteFile(file, got, 0o644))
			}
			if !*update {
				require.Equal(t, string(raw), string(got))
			}
		})
	}
}

func TestNoCaseIsMissing(t *testing.T) {
	for pattern, count := range map[string]int{"bug-*": 45, "conv-*-request-*": 32, "conv-*-response-*": 6, "conv-*-stream-*": 5, "*": 45 + 43} {
		files, err := filepath.Glob("cases/" + pattern + ".txt")
		require.NoError(t, err)
		require.Len(t, files, count, pattern)
	}
	for kind, count := range map[string]int{"bug": 45, "conv": 43} {
		for n := 1; n <= count; n++ {
			files, err := filepath.Glob(fmt.Sprintf("cases/%s-%02d-*.txt", kind, n))
			require.NoError(t, err)
			require.Len(t, files, 1, "%s %d", kind, n)
		}
	}
}

// section is a part of a file: "-- name words --" and the lines behind it.
type section struct{ name, words, text string }

func sections(file string) (head string, list []section) {
	var b *strings.Builder
	first := new(strings.Builder)
	b = first
	var texts []*strings.Builder
	for line := range strings.Lines(file) {
		title, isTitle := strings.CutPrefix(strings.TrimSpace(line), "-- ")
		title, ends := strings.CutSuffix(title, " --")
		if isTitle && ends {
			name, words, _ := strings.Cut(title, " ")
			list = append(list, section{name: name, words: words})
			b = new(strings.Builder)
			texts = append(texts, b)
			continue
		}
		b.WriteString(line)
	}
	for i := range list {
		list[i].text = texts[i].String()
	}
	return first.String(), list
}

// play runs a case and returns its file as it should be.
func play(t *testing.T, file string) []byte {
	head, list := sections(file)
	w := dialecttest.New(t, options(t, head))
	out := bytes.NewBufferString(head)
	last := map[string]string{}
	for _, s := range list {
		switch s.name {
		case "say":
			w.Engine.Say(reply(t, s))
			fmt.Fprintf(out, "-- %s --\n%s", strings.TrimSpace(s.name+" "+s.words), s.text)
		case "ask":
			fmt.Fprintf(out, "-- ask %s --\n%s", s.words, s.text)
			last["turn"], last["prompt"], last["answer"] = ask(w, s)
			fmt.Fprintf(out, "-- turn --\n%s-- engine --\n%s-- answer --\n%s", last["turn"], last["prompt"], last["answer"])
		case "turn", "engine", "answer":
		default:
			require.Fail(t, "unknown section "+s.name)
		}
	}
	for line := range strings.Lines(head) {
		line = strings.TrimRight(line, "\n")
		for _, what := range []string{"answer", "prompt", "turn"} {
			if text, ok := strings.CutPrefix(line, "must "+what+": "); ok {
				require.Contains(t, last[what], text)
			}
			if text, ok := strings.CutPrefix(line, "must not "+what+": "); ok {
				require.NotContains(t, last[what], text)
			}
		}
	}
	return out.Bytes()
}

func options(t *testing.T, head string) (o dialecttest.Options) {
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		var err error
		switch key {
		case "template":
			const inside = "{%- elif message.role in ('system', 'developer') %}"
			require.Equal(t, "system first", value)
			o.Template = strings.Replace(demo.Template(), inside, inside+"{{- raise_exception('System message must be at the beginning.') }}", 1)
		case "window":
			o.Window, err = strconv.Atoi(value)
		case "ping":
			o.PingEvery, err = time.ParseDuration(value)
		case "deadline":
			o.Deadline, err = time.ParseDuration(value)
		}
		require.NoError(t, err)
	}
	return o
}

func reply(t *testing.T, s section) dialecttest.Reply {
	r := dialecttest.Reply{Text: strings.TrimSuffix(s.text, "\n")}
	words := strings.Fields(s.words)
	for i := 0; i < len(words); i++ {
		var err error
		switch words[i] {
		case "cut":
			r.Cut = true
		case "spelled":
			r.Spelled = true
		case "stop":
			i++
			r.Stop = words[i]
		case "cached":
			i++
			r.Cached, err = strconv.Atoi(words[i])
		case "after":
			i++
			r.After, err = time.ParseDuration(words[i])
		case "fail":
			i++
			r.Err = &engine.Error{Class: engine.Class(words[i]), Message: "as the case says"}
		default:
			require.Fail(t, "unknown word "+words[i])
		}
		require.NoError(t, err)
	}
	return r
}

func ask(w *dialecttest.World, s section) (turn, prompt, answer string) {
	method, path, _ := strings.Cut(s.words, " ")
	var headers []string
	body := s.text
	for body != "" && body[0] != '{' {
		var line string
		line, body, _ = strings.Cut(body, "\n")
		if line == "" {
			break
		}
		headers = append(headers, line)
	}
	turns, requests := len(w.Turns()), len(w.Engine.Requests())
	r := w.Do(context.Background(), method, path, strings.TrimSuffix(body, "\n"), headers...)

	var b strings.Builder
	for _, n := range w.Turns()[turns:] {
		fmt.Fprintf(&b, "%s %s", n.ID, n.Decision)
		for _, x := range []struct{ name, value string }{
			{"reason", n.Reason},
			{"parent", n.Parent},
			{"class", n.Class},
			{"thread", n.Thread},
			{"tolerances", strings.Join(n.Tolerances, ",")},
			{"kwargs", n.Kwargs},
		} {
			if x.value != "" {
				fmt.Fprintf(&b, " %s=%s", x.name, x.value)
			}
		}
		if n.Ambiguous {
			b.WriteString(" ambiguous")
		}
		if n.Rewritten {
			b.WriteString(" rewritten")
		}
		fmt.Fprintf(&b, " keeps %d of %d tokens\n", n.Keep, n.Prompt)
		for _, m := range append(n.Added, n.Answer) {
			fmt.Fprintf(&b, "%s\n", m.AppendJSON(nil))
		}
	}
	turn = b.String()

	b.Reset()
	prompts := w.Engine.Prompts()
	for i, q := range w.Engine.Requests()[requests:] {
		fmt.Fprintf(&b, "%s", prompts[requests+i])
		if !strings.HasSuffix(b.String(), "\n") {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "[%s]\n", asked(q))
	}
	prompt = b.String()

	b.Reset()
	fmt.Fprintf(&b, "%d", r.Status)
	if after := r.Header.Get("Retry-After"); after != "" {
		fmt.Fprintf(&b, " Retry-After: %s", after)
	}
	b.WriteString("\n" + r.Body)
	if !strings.HasSuffix(r.Body, "\n") && method != http.MethodHead {
		b.WriteString("\n")
	}
	return turn, prompt, b.String()
}

// asked is what the engine got besides the prompt.
func asked(q engine.Request) string {
	s := fmt.Sprintf("max_tokens %d", q.Sampling.MaxTokens)
	add := func(name string, set bool, value any) {
		if set {
			s += strings.TrimRight(fmt.Sprintf(", %s %v", name, value), " ")
		}
	}
	if v := q.Sampling.Temperature; v != nil {
		add("temperature", true, *v)
	}
	if v := q.Sampling.TopP; v != nil {
		add("top_p", true, *v)
	}
	if v := q.Sampling.TopK; v != nil {
		add("top_k", true, *v)
	}
	add("stop", len(q.Sampling.Stop) > 0, q.Sampling.Stop)
	if g := q.Grammar; g != nil {
		add(g.Kind, true, g.Value)
	}
	return s
}
