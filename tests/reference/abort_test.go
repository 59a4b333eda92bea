package reference

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/event"
)

// TestAClientThatLeavesCostsWhatItHasToAtEveryPoint: while it waits for the engine
// nothing is sampled, then what was sampled is in the log, and an answer that is
// complete is a turn that was not delivered. The engine is told, and no slot and no
// goroutine stays behind.
func TestAClientThatLeavesCostsWhatItHasToAtEveryPoint(t *testing.T) {
	for _, wire := range []string{"sglang", "vllm", "llamacpp"} {
		for _, streamed := range []bool{false, true} {
			for name, c := range map[string]struct {
				reply mock.Reply
				// queued has another request take the engine's only place.
				queued bool
				// sampled is how many ids the log has in the end; -1 is all.
				sampled int
			}{
				"queued":                {mock.Say("Never said."), true, 0},
				"before the first byte": {mock.Reply{Text: "Never said.", Delay: time.Hour}, false, 0},
				"in the middle":         {mock.Reply{Text: "This never comes to its end.", Fault: mock.Fault{Kind: mock.Hang, After: 5}}, false, 5},
				"after the last":        {mock.Say("Said."), false, -1},
			} {
				kind := " whole"
				if streamed {
					kind = " streamed"
				}
				t.Run(wire+" "+name+kind, func(t *testing.T) {
					point := make(chan context.Context, 1)
					var complete atomic.Bool
					arrived := &counted{}
					w := newWorld(t, mock.Match(mock.Always(mock.Say("Fine.")),
						mock.Rule{Contains: "leaves", Reply: c.reply},
						mock.Rule{Contains: "occupies", Reply: mock.Reply{Text: "x", Fault: mock.Fault{Kind: mock.Hang}}}), options{
						Wire: wire, Concurrency: 1, Pool: func(p gateway.Pool) gateway.Pool { arrived.Pool = p; return arrived },
						Around: func(h http.Handler) http.Handler {
							return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
								if r.Header.Get("Leaves") != "" {
									point <- r.Context()
								}
								h.ServeHTTP(rw, r)
							})
						},
						Fault: func(at string) {
							// The client of a complete answer leaves before it is appended.
							if at == "turn.before_append" && c.sampled < 0 {
								select {
								case ctx := <-point:
									complete.Store(true)
									<-ctx.Done()
								default: // of another request
								}
							}
						},
					})
					w.served([]object{user("Hello.")}) // the engine is checked now
					// It is busy for a moment after its answer was read.
					eventually(t, func() bool { return w.engine.Running() == 0 }, "nothing runs")
					begun := len(w.reached())
					arrived.ids.Store(0)

					occupied, release := context.WithCancel(t.Context())
					defer release()
					other := make(chan struct{})
					if c.queued {
						go func() { defer close(other); send(occupied, w, "occupies", false) }()
						eventually(t, func() bool { return w.engine.Running() == 1 }, "the engine is busy")
					} else {
						close(other)
					}
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					left := make(chan struct{})
					go func() { defer close(left); send(ctx, w, "leaves", streamed) }()
					switch {
					case c.queued:
						eventually(t, func() bool { return w.pool.Stats().Waiting == 1 }, "it waits for the engine")
					case c.sampled == 0:
						eventually(t, func() bool { return w.engine.Running() == 1 }, "the engine has it")
					case c.sampled > 0:
						eventually(t, func() bool { return int(arrived.ids.Load()) == c.sampled }, "some of the answer is here")
					default:
						eventually(t, complete.Load, "the answer is complete")
					}
					leave()
					<-left

					if c.sampled < 0 {
						eventually(t, func() bool { return len(w.tree(session).Undelivered) == 1 }, "the turn is in the log, as not delivered")
						require.Len(t, w.turns(), 2)
						require.True(t, w.tree(session).Undelivered[w.last().ID])
						require.Empty(t, w.tree(session).Aborted)
					} else {
						eventually(t, func() bool { return len(w.tree(session).Aborted) == 1 }, "the aborted turn is in the log")
						aborted := w.tree(session).Aborted[0]
						require.Equal(t, "client_gone", aborted.GetReason())
						require.Equal(t, c.sampled, event.Count(aborted.GetPartial().GetCompletion().GetIds()))
						if c.queued {
							require.Len(t, w.reached(), begun+1, "the engine heard of the other only")
							require.Zero(t, w.pool.Stats().Waiting)
						} else if wire == "sglang" {
							require.Contains(t, w.engine.Aborted(), aborted.GetTurn())
						}
					}
					release()
					<-other
					eventually(t, func() bool { return w.engine.Running() == 0 }, "the engine has nothing to do")
					eventually(t, func() bool { return w.pool.Stats().Replicas[0].InFlight == 0 }, "the slot came back")
					w.served([]object{user("And now?")})
					eventually(t, func() bool { return !atWork() }, "no goroutine stays")
				})
			}
		}
	}
}

// counted counts the ids that arrive from the engine.
type counted struct {
	gateway.Pool
	ids atomic.Int32
}

func (c *counted) Generate(ctx context.Context, req engine.Request, emit func(engine.Chunk) error, restart func() bool) (pool.Result, error) {
	return c.Pool.Generate(ctx, req, func(chunk engine.Chunk) error {
		c.ids.Add(int32(len(chunk.IDs)))
		return emit(chunk)
	}, restart)
}

// atWork reports whether a goroutine has to do with a turn, at the gateway or at the
// engine.
func atWork() bool {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, at := range []string{"gateway.(*turn)", "gateway.(*Gateway)", "pool.(*Pool)", "engine/mock.(*Server).answer", "engine/wire."} {
		if bytes.Contains(stacks, []byte(at)) {
			return true
		}
	}
	return false
}

// send makes a chat completion and reads what comes, whatever it is.
func send(ctx context.Context, w *world, text string, streamed bool) {
	body, _ := json.Marshal(object{"model": "any", "stream": streamed, "messages": []object{user(text)}})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+chatPath, strings.NewReader(string(body)))
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+w.key)
	if text == "leaves" {
		req.Header.Set("Leaves", "yes")
	}
	if res, err := http.DefaultClient.Do(req); err == nil {
		for b := make([]byte, 1024); err == nil; {
			_, err = res.Body.Read(b)
		}
		res.Body.Close()
	}
}
