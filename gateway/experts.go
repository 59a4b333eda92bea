package gateway

import (
	"context"
	"crypto/sha256"
	"time"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/tree"
)

// Blobs keeps what is too large for the log, by its sha256.
type Blobs interface {
	// Put stores content and says where it is; when it returns, content outlives
	// this process and the machine's power. Content that is there already is no
	// error. It is called from many goroutines at once.
	Put(ctx context.Context, sum [sha256.Size]byte, content []byte) (uri string, err error)
}

// routedExperts is the kind of blob that holds the experts of a mixture model.
const routedExperts = "routed_experts"

// routedFrom is the position in the prompt from which on the engine is asked for
// its choice of experts: what the turns before have none for. It is -1 where
// nobody wants them.
func (t *turn) routedFrom() int {
	if !t.model.RoutedExperts {
		return -1
	}
	end := t.prompt.Keep
	for p := t.match.Parent; p != nil; p = p.Parent {
		if known := knownExperts(p); known > 0 {
			return min(end, known)
		}
		end = min(end, p.Keep)
	}
	return 0
}

// knownExperts is the position up to which a turn and those before it have
// experts; 0 where the turn has none.
func knownExperts(n *tree.Turn) int {
	for _, b := range n.Committed.GetGeneration().GetBlobs() {
		if b.GetKind() == routedExperts && len(b.GetShape()) > 0 {
			return int(b.GetStart() + b.GetShape()[0])
		}
	}
	return 0
}

// keepExperts stores the experts that the engine sent, so that the turn can
// refer to them. An engine that sent none leaves the turn without.
func (t *turn) keepExperts(ctx context.Context, r *engine.Routed) error {
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.g.cfg.AppendTimeout)
	defer cancel()
	content, codec := event.Pack(r.Data)
	sum := sha256.Sum256(content)
	uri, err := t.g.deps.Blobs.Put(ctx, sum, content)
	if err != nil {
		return &Error{Kind: LogDown, Message: "the experts of this turn cannot be stored now", RetryAfter: 5 * time.Second, Err: err}
	}
	t.blobs = append(t.blobs, &event.Blob{
		Kind: routedExperts, Sha256: sum[:], Size: int64(len(content)), Codec: string(codec), Uri: uri,
		Dtype: r.DType, Shape: r.Shape, Start: int64(r.Start),
	})
	return nil
}
