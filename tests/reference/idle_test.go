package reference

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal/mem"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/racetest"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/demo"
)

// stillEngine is still behind a pool, so that what a pool remembers of
// sessions counts too.
type stillEngine struct{ still }

func (s stillEngine) Generate(ctx context.Context, req engine.Request, emit func(engine.Chunk) error) (engine.Report, error) {
	r, err := s.still.Generate(ctx, req, emit, nil)
	return r.Report, err
}

func (s stillEngine) Check(context.Context, tokenizer.Tokenizer) (engine.Info, error) {
	return engine.Info{Kind: "still", Model: "demo"}, nil
}

// crowd is a gateway that has served two turns of each of many sessions, all of
// which are idle now.
func crowd(t *testing.T, sessions, cacheBytes int) *gateway.Gateway {
	still, text := newStill()
	model := demoModel(t)
	p, err := pool.New(pool.Config{Name: "demo", Tokenizer: demo.Tokenizer()}, pool.Replica{Name: "one", Engine: stillEngine{still}})
	require.NoError(t, err)
	model.Pool = p
	cfg := gateway.Default()
	cfg.CacheBytes = cacheBytes
	g, err := gateway.New(cfg, gateway.Deps{
		Journal: mem.New(mem.Options{}), Models: gateway.NewModels(model), Keys: gateway.NewKeys([]byte("seed"), adminKey),
	})
	require.NoError(t, err)
	say := func(role message.Role, s string) message.Message {
		return message.Message{Role: role, Content: message.TextContent(s)}
	}
	for i := range sessions {
		id := fmt.Sprintf("s%d", i)
		_, err := g.Open(t.Context(), gateway.OpenRequest{Session: id, Opened: &event.SessionOpened{}})
		require.NoError(t, err)
		history := []message.Message{say(message.System, "You help."), say(message.User, "Begin.")}
		for range 2 {
			req := gateway.Request{Session: id, Conversation: message.Split(history, nil), BodyHash: fmt.Appendf(nil, "%032d", len(history))}
			a, err := g.Complete(t.Context(), req, nil)
			require.NoError(t, err)
			require.Equal(t, text, a.Message.Content.String())
			history = append(history, a.Message, say(message.User, "Go on."))
		}
	}
	return g
}

// heap is what is alive.
func heap() int {
	runtime.GC()
	runtime.GC() // what finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// descriptors counts open files, where the system tells.
func descriptors() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}

// TestAnIdleSessionTakesNothing: A5. Ten thousand sessions that are evicted
// take less than 16 KiB each, no file and no goroutine, here with the log in the same
// memory; the gateway alone is the difference that its going makes.
func TestAnIdleSessionTakesNothing(t *testing.T) {
	const sessions, cache = 10_000, 1 << 20
	goroutines, files, before := runtime.NumGoroutine(), descriptors(), heap()
	g := crowd(t, sessions, cache)
	require.LessOrEqual(t, descriptors(), files+2, "no file for an idle session")
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+2, "no goroutine for an idle session")
	all := heap() - before
	require.LessOrEqual(t, g.Stats().CachedBytes, cache)
	t.Logf("%d bytes a session with the log's own, %d of them cached", all/sessions, g.Stats().Sessions)
	require.Less(t, all/sessions, 16<<10)
	// An evicted session comes back from the log.
	_, err := g.Complete(t.Context(), gateway.Request{Session: "s0", Conversation: message.Split([]message.Message{
		{Role: message.User, Content: message.TextContent("Are you there?")},
	}, nil)}, nil)
	require.NoError(t, err)
	runtime.KeepAlive(g)
}

// TestTheCacheCountsWhatItHolds: the limit in bytes is one of memory. The same
// sessions cached and evicted differ by what is counted for them, to a factor
// of 1.5.
func TestTheCacheCountsWhatItHolds(t *testing.T) {
	const sessions = 2000
	alive := func(cache int) (bytes, counted int) {
		before := heap()
		g := crowd(t, sessions, cache)
		bytes = heap() - before
		counted = g.Stats().CachedBytes
		runtime.KeepAlive(g)
		return bytes, counted
	}
	evicted, few := alive(1)
	cached, all := alive(1 << 30)
	t.Logf("cached: %d bytes a session, counted as %d", (cached-evicted)/sessions, (all-few)/sessions)
	if !racetest.On {
		require.Greater(t, float64(all-few), float64(cached-evicted)/1.5)
		require.Less(t, float64(all-few), float64(cached-evicted)*1.5)
	}
}

// TestSessionsThatDoNotExistTakeNoRoom: whoever asks for them, with whatever
// key, does not push others out of the cache.
func TestSessionsThatDoNotExistTakeNoRoom(t *testing.T) {
	g := crowd(t, 3, 1<<20)
	before := g.Stats()
	for i := range 100 {
		_, err := g.Authorize(t.Context(), fmt.Sprintf("tls-nobody%d.secret", i), "")
		require.Error(t, err)
		_, err = g.Complete(t.Context(), gateway.Request{Session: fmt.Sprintf("nobody%d", i)}, nil)
		require.Error(t, err)
	}
	require.Equal(t, before.CachedBytes, g.Stats().CachedBytes)
	require.Equal(t, before.Sessions, g.Stats().Sessions)
}

// TestASessionAtWorkIsNotEvicted: 34 and 59. While a turn is under way its
// session stays, however full the cache is.
func TestASessionAtWorkIsNotEvicted(t *testing.T) {
	open := make(chan struct{})
	w := newWorld(t, func(r mock.Request) mock.Reply {
		if r.Last("user") == "Wait." {
			<-open
		}
		return mock.Say("Fine.")
	}, options{CacheBytes: 1})
	got := make(chan reply, 1)
	go func() { got <- w.post(chatPath, object{"messages": []object{user("Wait.")}}) }()
	eventually(t, func() bool { return w.engine.Running() == 1 }, "the engine is asked")
	for i := range 20 {
		opened, err := w.gateway.Open(t.Context(), gateway.OpenRequest{Session: fmt.Sprint("other", i), Opened: &event.SessionOpened{}})
		require.NoError(t, err)
		r := w.post(chatPath, object{"messages": []object{user("Quick.")}}, "Authorization: Bearer "+opened.Key)
		require.Equal(t, http.StatusOK, r.status, r.body)
		require.Equal(t, 1, w.gateway.Stats().Sessions)
	}
	close(open)
	require.Equal(t, http.StatusOK, (<-got).status)
	require.Len(t, w.turns(), 1)
}
