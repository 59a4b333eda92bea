package bpe_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/bpe"
	"turnlog.dev/tokenizer/demo"
)

// prose is English with code, like an agent's context.
func prose(n int) string {
	const part = "The reader sends a short request to the server, and waits.\n\tif err := server.Close(); err != nil {\n\t\treturn fmt.Errorf(\"close %d: %w\", i, err)\n\t}\n"
	return strings.Repeat(part, n/len(part)+1)[:n]
}

func BenchmarkEncode(b *testing.B) {
	tok := demo.Tokenizer()
	for _, n := range []int{20, 100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			text, dst := prose(n), make([]uint32, 0, n)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				tok.Encode(dst, text)
			}
		})
	}
}

func BenchmarkEncodeSpans(b *testing.B) {
	tok, text := demo.Tokenizer(), prose(10_000)
	b.SetBytes(10_000)
	b.ReportAllocs()
	for b.Loop() {
		tok.EncodeSpans(text)
	}
}

func BenchmarkStableCut(b *testing.B) {
	tok, text := demo.Tokenizer(), prose(10_000)
	b.SetBytes(10_000)
	b.ReportAllocs()
	for b.Loop() {
		tok.StableCut(text)
	}
}

// BenchmarkStream decodes one id at a time, as from an engine.
func BenchmarkStream(b *testing.B) {
	tok := demo.Tokenizer()
	ids := tok.Encode(nil, prose(1000))
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		s := tokenizer.NewStream(tok)
		out = out[:0]
		for _, id := range ids {
			out = s.Append(out, id)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)), "ns/id")
}

func BenchmarkLoad(b *testing.B) {
	data := demoFile(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		_, err := bpe.Load(data)
		require.NoError(b, err)
	}
}

func BenchmarkLongWord(b *testing.B) {
	tok, text := demo.Tokenizer(), strings.Repeat("a", 100_000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		tok.Encode(nil, text)
	}
}
