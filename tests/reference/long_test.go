package reference

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/racetest"
	"turnlog.dev/tokenizer/demo"
)

// still samples the same answer at once, as no engine does: what is counted is
// the gateway's.
type still struct{ ids []uint32 }

func newStill() (s still, text string) {
	text = "The file holds what we looked for, and nothing besides it that matters."
	end, _ := demo.Tokenizer().TokenID("<|im_end|>")
	return still{append(demo.Tokenizer().Encode(nil, text), end)}, text
}

func (s still) Generate(_ context.Context, req engine.Request, emit func(engine.Chunk) error, _ func() bool) (pool.Result, error) {
	err := emit(engine.Chunk{IDs: s.ids, Logprobs: make([]float32, len(s.ids))})
	return pool.Result{Report: engine.Report{
		FinishReason: "stop", Proof: event.PromptProof_PROMPT_PROOF_ECHO, PromptTokens: len(req.Prompt),
		LogprobKind: event.LogprobKind_LOGPROB_KIND_RAW,
	}, Backend: "still", Engine: "still"}, err
}

// counting notes what the gateway asks of its log; whoever watches a run asks too.
type counting struct {
	journal.Journal
	appends, bytes, reads, newIDs atomic.Int64
}

// soFar is what was asked.
func (c *counting) soFar() cost {
	return cost{
		appends: int(c.appends.Load()), bytes: int(c.bytes.Load()), reads: int(c.reads.Load()), newIDs: int(c.newIDs.Load()),
	}
}

func (c *counting) Append(ctx context.Context, tip journal.Tip, ev *event.Event) (journal.Tip, error) {
	raw, err := event.Encode(ev)
	if err != nil {
		return journal.Tip{}, err
	}
	c.appends.Add(1)
	c.bytes.Add(int64(len(raw)))
	c.newIDs.Add(int64(ev.GetTurnCommitted().NewIDs()))
	return c.Journal.Append(ctx, tip, ev)
}

func (c *counting) ReadSession(ctx context.Context, session string, from journal.Tip) iter.Seq2[journal.Entry, error] {
	c.reads.Add(1)
	return c.Journal.ReadSession(ctx, session, from)
}

// cost is what one turn took.
type cost struct {
	appends, bytes, reads, newIDs int
	// mallocs are allocations, allocated are their bytes but for those of the
	// prompt, four for each id, which the engine gets whole.
	mallocs, allocated int
}

// TestTurn1000CostsWhatTurn10Costs: A3 and A4. Work is counted, never timed:
// bytes that reach the log, new ids, reads of the log, allocations and their
// bytes, but for the one thing that has to grow: the prompt that the engine
// gets.
func TestTurn1000CostsWhatTurn10Costs(t *testing.T) {
	pool, text := newStill()
	model := demoModel(t)
	model.Pool, model.ContextLength = pool, 1<<20
	log := &counting{Journal: mem.New(mem.Options{})}
	g, err := gateway.New(gateway.Default(), gateway.Deps{Journal: log, Models: gateway.NewModels(model), Keys: gateway.NewKeys([]byte("seed"), adminKey)})
	require.NoError(t, err)
	opened, err := g.Open(t.Context(), gateway.OpenRequest{Opened: &event.SessionOpened{}})
	require.NoError(t, err)
	say := func(role message.Role, s string) message.Message {
		return message.Message{Role: role, Content: message.TextContent(s)}
	}
	history := []message.Message{say(message.System, "You help.")}
	costs := make([]cost, 1001)
	for i := 1; i <= 1000; i++ {
		history = append(history, say(message.User, fmt.Sprintf("What is in the file of number %04d?", i)))
		req := gateway.Request{Session: opened.Session, Conversation: message.Split(slices.Clip(history), nil), BodyHash: fmt.Appendf(nil, "%032d", i)}
		var before, after runtime.MemStats
		was := log.soFar()
		runtime.ReadMemStats(&before)
		a, err := g.Complete(t.Context(), req, nil)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		is := log.soFar()
		costs[i] = cost{
			appends: is.appends - was.appends, bytes: is.bytes - was.bytes, reads: is.reads - was.reads,
			newIDs: is.newIDs - was.newIDs, mallocs: int(after.Mallocs - before.Mallocs), allocated: int(after.TotalAlloc-before.TotalAlloc) - room(a.PromptTokens),
		}
		history = append(history, a.Message)
		require.Equal(t, text, a.Message.Content.String())
	}
	early, late := median(costs[6:15]), median(costs[992:1001])
	t.Logf("turns 6 to 14:     %+v", early)
	t.Logf("turns 992 to 1000: %+v", late)
	require.Equal(t, 1, late.appends, "one event a turn")
	require.Zero(t, late.reads, "nothing is read again")
	require.InEpsilon(t, early.newIDs, late.newIDs, 0.1)
	require.InEpsilon(t, early.bytes, late.bytes, 0.1, "bytes that reach the log")
	require.InEpsilon(t, early.mallocs, late.mallocs, 0.1, "allocations")
	if !racetest.On {
		require.InEpsilon(t, early.allocated, late.allocated, 0.1, "bytes allocated besides the prompt")
	}
}

// room is what the ids of a prompt take, with what the allocator rounds up to.
func room(ids int) int { return 4 * cap(append([]uint32(nil), make([]uint32, ids)...)) }

// median is the middle of each figure: a map that grows at one turn is not
// what a turn costs.
func median(list []cost) (m cost) {
	for _, f := range []func(*cost) *int{
		func(c *cost) *int { return &c.appends }, func(c *cost) *int { return &c.bytes }, func(c *cost) *int { return &c.reads },
		func(c *cost) *int { return &c.newIDs }, func(c *cost) *int { return &c.mallocs }, func(c *cost) *int { return &c.allocated },
	} {
		var all []int
		for i := range list {
			all = append(all, *f(&list[i]))
		}
		slices.Sort(all)
		*f(&m) = all[len(all)/2]
	}
	return m
}
