package parse_test

import (
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/family/familytest"
	"turnlog.dev/tokenizer/parse"
)

var update = flag.Bool("update", false, "write testdata/replies.json")

// reply is one case of testdata/replies.json: what a model wrote, with its
// marks spelled out, and what it says.
type reply struct {
	Name   string      `json:"name"`
	Model  string      `json:"model"`
	Prompt string      `json:"prompt,omitempty"`
	Text   string      `json:"text"`
	Finish string      `json:"finish,omitempty"`
	Want   parse.Reply `json:"want"`
}

func replies(t testing.TB) (all []reply) {
	raw, err := os.ReadFile("testdata/replies.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &all))
	return all
}

var tools = []message.Definition{{Name: "weather", Raw: []byte(`{"type":"function","function":{"name":"weather","parameters":{
	"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},"at":{"anyOf":[{"type":"string"},{"type":"null"}]},
	"tags":{"type":"array"},"unit":{"enum":["C","F"]}}}}}`)}}

func checkpoint(t testing.TB, name string) familytest.Checkpoint {
	for _, c := range familytest.Checkpoints() {
		if c.Name == name {
			return c
		}
	}
	require.Fail(t, "no checkpoint "+name)
	return familytest.Checkpoint{}
}

func read(g *parse.Grammar, o parse.Options, finish string, chunks ...[]uint32) (parse.Reply, []parse.Delta) {
	p := g.Parser(o)
	var all []parse.Delta
	for _, c := range chunks {
		all = append(all, p.Push(c)...)
	}
	r, rest := p.Finish(finish)
	return r, append(all, rest...)
}

func TestRepliesAreReadAsTheGoldenFileSays(t *testing.T) {
	all := replies(t)
	for i, c := range all {
		cp := checkpoint(t, c.Model)
		tok := cp.Tokenizer()
		g := parse.Bind(cp.Family.Format, tok, cp.Family.Stops)
		got, _ := read(g, parse.Options{Prompt: c.Prompt, Tools: tools}, c.Finish, tok.Encode(nil, c.Text))
		if *update {
			all[i].Want = got
			continue
		}
		require.Equal(t, c.Want, got, "%s: %s", c.Model, c.Name)
	}
	if *update {
		f, err := os.Create("testdata/replies.json")
		require.NoError(t, err)
		e := json.NewEncoder(f)
		e.SetEscapeHTML(false)
		e.SetIndent("", "\t")
		require.NoError(t, e.Encode(all))
		require.NoError(t, f.Close())
	}
}

// joined puts deltas together, as a client does.
func joined(deltas []parse.Delta) (r parse.Reply) {
	for _, d := range deltas {
		switch d.Kind {
		case parse.Reasoning:
			r.Reasoning += d.Text
		case parse.Content:
			r.Content += d.Text
		case parse.CallStart:
			r.Calls = append(r.Calls, parse.Call{Name: d.Name, ModelID: d.ModelID})
		case parse.CallArguments:
			r.Calls[d.Call].Arguments += d.Text
		}
	}
	return r
}

func TestTheReplyIsTheSameForEveryWayToCutTheStream(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range replies(t) {
		cp := checkpoint(t, c.Model)
		tok := cp.Tokenizer()
		g := parse.Bind(cp.Family.Format, tok, cp.Family.Stops)
		o := parse.Options{Prompt: c.Prompt, Tools: tools}
		ids := tok.Encode(nil, c.Text)
		for range 20 {
			got, deltas := read(g, o, c.Finish, cuts(r, ids)...)
			require.Equal(t, c.Want, got, "%s: %s", c.Model, c.Name)
			got.Flags = nil
			require.Equal(t, got, joined(deltas), "%s: %s", c.Model, c.Name)
		}
	}
}

func cuts(r *rand.Rand, ids []uint32) (out [][]uint32) {
	for len(ids) > 0 {
		n := 1 + r.IntN(min(len(ids), 5))
		out = append(out, ids[:n])
		ids = ids[n:]
	}
	return out
}

// TestReadingTakesTimeInProportion streams what a parser holds back, or looks
// through, and makes it four times as long: what is searched and what is
// allocated must not grow with the square.
func TestReadingTakesTimeInProportion(t *testing.T) {
	for _, c := range []struct{ name, model, open, again string }{
		{"white space before all", "qwen3-hybrid", "", "\n"},
		{"white space in content", "qwen3-hybrid", "a", " \n"},
		{"white space in thinking", "qwen3-hybrid", "<think>a", " \n"},
		{"the start of a mark", "qwen3-hybrid", "a", "<"},
		{"a block without end", "qwen3-hybrid", "<tool_call>", "{"},
		{"a block of letters", "qwen3-coder", "<tool_call>\n<function=", "x "},
		{"a bare call", "llama-3.1", "{", "{ "},
		{"a header without end", "gpt-oss", "<|channel|>", "to= "},
		{"an argument without end", "gpt-oss", "<|channel|>commentary to=functions.x<|message|>", "{ "},
	} {
		cp := checkpoint(t, c.model)
		tok := cp.Tokenizer()
		g := parse.Bind(cp.Family.Format, tok, cp.Family.Stops)
		work := func(n int) (searched, allocated float64) {
			ids := tok.Encode(nil, c.open)
			for range n {
				ids = append(ids, tok.Encode(nil, c.again)...)
			}
			var before, after runtime.MemStats
			least := math.Inf(1)
			var p parse.Parser
			for range 5 {
				runtime.ReadMemStats(&before)
				p = g.Parser(parse.Options{Tools: tools})
				for i := range ids {
					p.Push(ids[i : i+1])
				}
				p.Finish("stop")
				runtime.ReadMemStats(&after)
				least = min(least, float64(after.TotalAlloc-before.TotalAlloc))
			}
			return float64(parse.Looked(p)), least
		}
		searched, allocated := work(4_000)
		more, most := work(16_000)
		require.Positive(t, searched, c.name)
		require.Less(t, more/searched, 4.1, c.name)
		require.Less(t, most/allocated, 6.0, c.name)
	}
}

func TestAMarkIsRecognisedByItsIDAlone(t *testing.T) {
	cp := checkpoint(t, "qwen3-hybrid")
	tok := cp.Tokenizer()
	g := parse.Bind(cp.Family.Format, tok, cp.Family.Stops)
	text := `Write <tool_call>{"name": "x", "arguments": {}}</tool_call> to call.`
	got, _ := read(g, parse.Options{}, "stop", tok.EncodePlain(nil, text))
	require.Equal(t, parse.Reply{Content: text}, got)
}

func TestBytesThatAreNoTextBecomeReplacementCharacters(t *testing.T) {
	cp := checkpoint(t, "qwen3-hybrid")
	tok := cp.Tokenizer()
	g := parse.Bind(cp.Family.Format, tok, cp.Family.Stops)
	byID := map[byte]uint32{}
	for id := range uint32(tok.VocabSize()) {
		if b, ok := tok.AppendBytes(nil, id); ok && len(b) == 1 {
			byID[b[0]] = id
		}
	}
	for _, raw := range []string{"\xe2\x82", "a\xe2\x82b", "\xff\xfe", "\xf0\x9f\x98\x80", "\xf0\x9fx", "\xc3\xc3\xa9", "\xe2\x82\xe2\x82\xac", "\xed\xa0\x80"} {
		var ids []uint32
		for i := range len(raw) {
			ids = append(ids, byID[raw[i]])
		}
		for n := 1; n <= len(ids); n++ {
			got, _ := read(g, parse.Options{}, "length", slices.Collect(slices.Chunk(ids, n))...)
			require.Equal(t, tok.Decode(ids), got.Content, "%q", raw)
		}
	}
}

func FuzzChunksNeverMatter(f *testing.F) {
	all := familytest.Checkpoints()
	for i, c := range replies(f) {
		n := slices.IndexFunc(all, func(cp familytest.Checkpoint) bool { return cp.Name == c.Model })
		f.Add(uint8(n), c.Text, uint64(i), strings.HasSuffix(c.Prompt, "<think>\n"))
	}
	grammars := make([]*parse.Grammar, len(all))
	toks := make([]tokenizer.Tokenizer, len(all))
	for i, c := range all {
		toks[i] = c.Tokenizer()
		grammars[i] = parse.Bind(c.Family.Format, toks[i], c.Family.Stops)
	}
	f.Fuzz(func(t *testing.T, n uint8, text string, seed uint64, opened bool) {
		i := int(n) % len(all)
		o := parse.Options{Tools: tools}
		if opened {
			o.Prompt = "<think>\n"
		}
		r := rand.New(rand.NewPCG(seed, 0))
		ids := toks[i].Encode(nil, text)
		// Now and then an id that no text leads to.
		for range r.IntN(3) {
			ids = slices.Insert(ids, r.IntN(len(ids)+1), r.Uint32N(uint32(toks[i].VocabSize())))
		}
		whole, deltas := read(grammars[i], o, "stop", ids)
		cut, _ := read(grammars[i], o, "stop", cuts(r, ids)...)
		require.Equal(t, whole, cut)
		whole.Flags = nil
		require.Equal(t, whole, joined(deltas))
	})
}
