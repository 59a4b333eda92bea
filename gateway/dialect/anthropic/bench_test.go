package anthropic_test

import (
	"fmt"
	"strings"
	"testing"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect/anthropic"
	"turnlog.dev/tokenizer/parse"
)

// BenchmarkDecode reads a history of 200 messages with tools, 200 KB.
func BenchmarkDecode(b *testing.B) {
	var m strings.Builder
	for i := range 100 {
		fmt.Fprintf(&m, `{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_%d","content":"%s"}]},`, i, strings.Repeat("line of output\\n", 60))
		fmt.Fprintf(&m, `{"role":"assistant","content":[{"type":"thinking","thinking":"%s","signature":"dHVybmxvZzoxOnQtMDAwMQ=="},{"type":"tool_use","id":"call_%d","name":"Bash","input":{"command":"ls"}}]},`, strings.Repeat("hm ", 60), i+1)
	}
	body := []byte(`{"model":"m","max_tokens":100,"system":"be good","tools":[` +
		strings.TrimSuffix(strings.Repeat(`{"name":"f","description":"`+strings.Repeat("word ", 300)+`","input_schema":{"type":"object","properties":{}}},`, 40), ",") +
		`],"messages":[` + m.String() + `{"role":"user","content":"go on"}]}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, _, err := anthropic.Decode(body); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDelta writes one piece of text.
func BenchmarkDelta(b *testing.B) {
	s := anthropic.NewStream(anthropic.Options{}, func([]byte) error { return nil })
	s.Begin("t-1", 1)
	var _ *gateway.Answer
	for b.Loop() {
		_ = s.Delta(parse.Delta{Kind: parse.Content, Text: " word"})
	}
}
