package parse_test

import (
	"strings"
	"syscall"
	"testing"

	"turnlog.dev/tokenizer/parse"
)

// BenchmarkParse reads a reply of about 2,000 tokens, one id at a time as an
// engine streams it, and as a whole.
func BenchmarkParse(b *testing.B) {
	cp := checkpoint(b, "qwen3-hybrid")
	tok := cp.Tokenizer()
	g := parse.Bind(cp.Family.Format, tok, cp.Family.Stops)
	line := strings.Repeat("so the answer is on the way to you, and ", 60)
	ids := tok.Encode(nil, "<think>\n"+line+"\n</think>\n\n"+line+
		"\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \""+line+"\"}}\n</tool_call><|im_end|>")
	for _, chunk := range []int{1, len(ids)} {
		b.Run(map[bool]string{true: "streamed", false: "whole"}[chunk == 1], func(b *testing.B) {
			b.ReportAllocs()
			began := processor()
			for b.Loop() {
				p := g.Parser(parse.Options{Tools: tools})
				for i := 0; i < len(ids); i += chunk {
					p.Push(ids[i:min(len(ids), i+chunk)])
				}
				if r, _ := p.Finish("stop"); len(r.Calls) != 1 {
					b.Fatal(r.Flags)
				}
			}
			b.ReportMetric(float64(len(ids)), "ids")
			b.ReportMetric(float64(processor()-began)/float64(b.N)/float64(len(ids)), "cpu-ns/id")
		})
	}
}

// processor is the processor time of this process in nanoseconds: on a busy
// machine the clock is no measure.
func processor() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
