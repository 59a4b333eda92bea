// Package bench measures what DESIGN promises and prints it. RESULTS.md keeps
// the last figures.
package bench

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
	"turnlog.dev/schema/journal/mem"
	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/hub"
	"turnlog.dev/tokenizer/prompt"
)

// still is a pool that samples the same answer at once: what is measured is
// the gateway and the log.
type still struct{ ids []uint32 }

func (s still) Generate(_ context.Context, req engine.Request, emit func(engine.Chunk) error, _ func() bool) (pool.Result, error) {
	logprobs := make([]float32, len(s.ids))
	for i := range logprobs {
		logprobs[i] = -float32(i%97) / 31
	}
	err := emit(engine.Chunk{IDs: s.ids, Logprobs: logprobs})
	return pool.Result{Report: engine.Report{
		FinishReason: "stop", Proof: event.PromptProof_PROMPT_PROOF_ECHO, PromptTokens: len(req.Prompt),
		LogprobKind: event.LogprobKind_LOGPROB_KIND_RAW,
	}, Backend: "still", Engine: "still"}, err
}

// embedded opens a turn stream on a server in this process, mode dev.
func embedded(tb testing.TB) journal.Journal {
	ctx, cancel := context.WithCancel(context.Background())
	srv, err := natsd.New(natsd.Config{Mode: natsd.Dev, Dir: tb.TempDir(), MaxBytes: 8 << 30}, slog.New(slog.DiscardHandler))
	require.NoError(tb, err)
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	require.NoError(tb, srv.Ready(ctx))
	conn, err := jet.Dial(jet.Options{InProcess: srv})
	require.NoError(tb, err)
	tb.Cleanup(func() { conn.Close(); cancel(); <-ended })
	cfg := jet.DefaultConfig("default", jet.Turns)
	cfg.MaxBytes = 7 << 30
	log, err := conn.Open(ctx, cfg)
	require.NoError(tb, err)
	return log
}

// demoModel is the embedded demo model over a pool.
func demoModel(tb testing.TB, p gateway.Pool) *gateway.Model {
	files, err := hub.Hub{}.OpenFS(demo.Files(), "demo")
	require.NoError(tb, err)
	fam := family.Detect(family.Evidence{Template: files.Template.Source("default"), Added: files.Tokenizer.Added()})
	assembler, err := prompt.New(prompt.Model{Renderer: files.Template, Tokenizer: files.Tokenizer, Family: fam, StopTokens: files.StopTokens})
	require.NoError(tb, err)
	return &gateway.Model{
		Name: "demo", Aliases: []string{"*"}, Tokenizer: files.Tokenizer, Prompts: assembler, Family: fam.Name,
		TokenizerID: files.Tokenizer.Fingerprint(), TemplateID: files.Template.Fingerprint(), Pool: p,
	}
}

// answer is what the still model samples: about n tokens of text.
func answer(n int) (ids []uint32, text string) {
	tok := demo.Tokenizer()
	text = strings.TrimSpace(strings.Repeat("The file holds what we looked for. ", n/8))
	ids = tok.Encode(nil, text)
	end, _ := tok.TokenID("<|im_end|>")
	return append(ids, end), text
}

func newGateway(tb testing.TB, j journal.Journal, p gateway.Pool) *gateway.Gateway {
	g, err := gateway.New(gateway.Default(), gateway.Deps{
		Journal: j, Models: gateway.NewModels(demoModel(tb, p)), Keys: gateway.NewKeys([]byte("seed"), "admin"),
	})
	require.NoError(tb, err)
	return g
}

func textOf(role message.Role, s string) message.Message {
	return message.Message{Role: role, Content: message.TextContent(s)}
}

// BenchmarkTurn is the CPU of one committed turn without HTTP: tokens in, the
// log's acknowledgement awaited. Each turn extends a history of the given
// length by a question of about 500 tokens and an answer of about 200; a
// session is given up after 8 turns, so that the length stays.
func BenchmarkTurn(b *testing.B) {
	for _, log := range []string{"memory", "embedded"} {
		for _, context := range []int{1000, 8000, 80000} {
			b.Run(fmt.Sprintf("log=%s/context=%d", log, context), func(b *testing.B) {
				var j journal.Journal = mem.New(mem.Options{})
				if log == "embedded" {
					j = embedded(b)
				}
				benchTurns(b, j, context)
			})
		}
	}
}

const turnsPerSession = 8

func benchTurns(b *testing.B, j journal.Journal, length int) {
	ids, text := answer(200)
	g := newGateway(b, j, still{ids})
	question := strings.Repeat("What is in the next file, and why? ", 55)
	long := strings.Repeat("A line of the long document. ", length/7)
	var history []message.Message
	session := ""
	b.ReportAllocs()
	var spent, began time.Duration
	turns := 0
	for n := 0; b.Loop(); n++ {
		if n%turnsPerSession == 0 {
			b.StopTimer()
			if n > 0 {
				spent += cpuTime() - began
			}
			opened, err := g.Open(b.Context(), gateway.OpenRequest{Opened: &event.SessionOpened{}})
			require.NoError(b, err)
			session = opened.Session
			history = []message.Message{textOf(message.System, "You help."), textOf(message.User, long)}
			_, err = g.Complete(b.Context(), gateway.Request{Session: session, Conversation: message.Split(history, nil)}, nil)
			require.NoError(b, err)
			history = append(history, textOf(message.Assistant, text))
			began = cpuTime()
			b.StartTimer()
		}
		turns++
		history = append(history, textOf(message.User, question))
		_, err := g.Complete(b.Context(), gateway.Request{Session: session, Conversation: message.Split(history, nil)}, nil)
		if err != nil {
			b.Fatal(err)
		}
		history = append(history, textOf(message.Assistant, text))
	}
	spent += cpuTime() - began
	b.ReportMetric(float64(spent.Microseconds())/float64(turns), "cpu-µs/turn")
}

// cpuTime is what this process has used so far, user and system: the gateway,
// the embedded log and the collector.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
