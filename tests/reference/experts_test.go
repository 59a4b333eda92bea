package reference

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/tree"
)

// kept is a place for blobs in memory.
type kept struct {
	mu     sync.Mutex
	fails  bool
	values map[string][]byte
}

func (k *kept) Put(_ context.Context, sum [sha256.Size]byte, content []byte) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fails {
		return "", errors.New("the disk is full")
	}
	name := hex.EncodeToString(sum[:])
	k.values[name] = content
	return "mem://" + name, nil
}

// requireExperts compares what a turn refers to with what the engine chose.
func (k *kept) requireExperts(t *testing.T, n *tree.Turn, start int) {
	t.Helper()
	blobs := n.Committed.GetGeneration().GetBlobs()
	require.Len(t, blobs, 1)
	b := blobs[0]
	require.EqualValues(t, start, b.GetStart())
	require.EqualValues(t, n.Len-1-start, b.GetShape()[0])
	data, err := event.Unpack(k.values[hex.EncodeToString(b.GetSha256())], event.Encoding(b.GetCodec()))
	require.NoError(t, err)
	var want []byte
	for at, id := range n.IDs(nil, n.Len-1) {
		if at >= start {
			want = append(want, mock.SomeExperts.Choose(at, id)...)
		}
	}
	require.Equal(t, want, data)
}

// TestATurnBringsTheExpertsThatItsBranchHasNot: a continuation, a branch off the
// middle, and a turn behind one that has none.
func TestATurnBringsTheExpertsThatItsBranchHasNot(t *testing.T) {
	store := &kept{values: map[string][]byte{}}
	mixture := func(c *mock.Config) { c.Experts = mock.SomeExperts }
	script := mock.Match(mock.Always(mock.Say("Fine.")), mock.Rule{Contains: "twice", Reply: mock.Say("Once ### twice")})
	w := newWorld(t, script, options{Wire: "vllm", Mock: mixture, Blobs: store})
	_, one := w.served([]object{user("Begin.")})
	root := w.last()
	store.requireExperts(t, root, 0)
	_, two := w.served(append(one, user("Go on.")))
	second := w.last()
	extends(t, second, root)
	store.requireExperts(t, second, root.Len-1)
	_, _ = w.served(append(two, user("And on.")))
	store.requireExperts(t, w.last(), second.Len-1)
	w.served(append(one, user("Or go otherwise.")))
	store.requireExperts(t, w.last(), root.Len-1)
	w.served(append(one, user("Say it twice.")), object{"stop": []string{"###"}})
	store.requireExperts(t, w.last(), root.Len-1)

	// On a stream, an answer that was ended early never comes to its experts.
	w = newWorld(t, script, options{Wire: "sglang", Mock: mixture, Blobs: store})
	_, one = w.served([]object{user("Begin.")})
	root = w.last()
	_, two = w.served(append(one, user("Say it twice.")), object{"stop": []string{"###"}})
	require.Empty(t, w.last().Committed.GetGeneration().GetBlobs())
	w.served(append(two, user("Go on.")))
	require.EqualValues(t, root.Len-1, w.last().Committed.GetGeneration().GetBlobs()[0].GetStart(), "what the turn between has none for, too")
}

// TestAnAnswerWhoseExpertsCannotBeKeptIsNotGiven: what was sampled is in the log
// as an aborted turn, and the agent is told to come again.
func TestAnAnswerWhoseExpertsCannotBeKeptIsNotGiven(t *testing.T) {
	store := &kept{values: map[string][]byte{}, fails: true}
	w := newWorld(t, mock.Always(mock.Say("Fine.")), options{
		Blobs: store, Mock: func(c *mock.Config) { c.Experts = mock.SomeExperts },
	})
	r := w.chat([]object{user("Begin.")})
	require.Equal(t, http.StatusServiceUnavailable, r.status, r.body)
	require.NotEmpty(t, r.header.Get("Retry-After"))
	require.Empty(t, w.turns())
	require.Len(t, w.tree(session).Aborted, 1)
	store.mu.Lock()
	store.fails = false
	store.mu.Unlock()
	w.served([]object{user("Begin.")})
	require.Equal(t, []int64{int64(w.last().Len - 1), 8}, w.last().Committed.GetGeneration().GetBlobs()[0].GetShape())
}
