package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Note is what stands beside a row of the shards: one of a reward, an annotation
// and the place of an array. Each is as the log would say it, without its turn and
// branch.
type Note struct {
	// Row is what a finding calls it, Branch the branch that the row is of.
	Row, Branch string
	// Turn is the place in the turn stream of the turn that it is about, 0 for the
	// row as a whole.
	Turn uint64
	// At is the log's time of what was said; a blob has none.
	At time.Time

	Reward     *event.RewardAssigned
	Annotation *event.Annotated
	Blob       *event.Blob
}

// Beside compares what stands beside the rows of one session with the log.
func Beside(ctx context.Context, turns journal.Journal, id string, notes []Note) ([]Finding, error) {
	var entries []journal.Entry
	at := map[uint64]*event.TurnCommitted{}
	for e, err := range turns.ReadSession(ctx, id, journal.Tip{}) {
		if errors.Is(err, event.ErrMalformed) || errors.Is(err, event.ErrMajor) {
			break // which is said where the log is verified
		}
		if err != nil {
			return nil, fmt.Errorf("verify: session %s: %w", id, err)
		}
		entries = append(entries, e)
		if c := e.Event.GetTurnCommitted(); c != nil {
			at[e.Tip.Position] = c
		}
	}
	var found []Finding
	for _, n := range notes {
		turn := at[n.Turn]
		switch {
		case n.Turn != 0 && turn == nil:
			found = append(found, Finding{id, Exported, fmt.Sprintf("beside row %s stands something about a turn that the log does not have", n.Row)})
		case n.Blob != nil && !slices.ContainsFunc(turn.GetGeneration().GetBlobs(), func(b *event.Blob) bool { return sameBlob(b, n.Blob) }):
			found = append(found, Finding{id, Exported, fmt.Sprintf("beside row %s stands an array that its turn does not name", n.Row)})
		case n.Blob == nil && !slices.ContainsFunc(entries, func(e journal.Entry) bool { return n.said(e, turn.GetTurn()) }):
			found = append(found, Finding{id, Exported, fmt.Sprintf("beside row %s stands a reward or an annotation that nobody gave", n.Row)})
		}
	}
	return found, nil
}

// said reports whether an entry of the log says what the note does, of a turn or
// of the whole session.
func (n *Note) said(e journal.Entry, turn string) bool {
	if !e.Time.Truncate(time.Microsecond).Equal(n.At) {
		return false
	}
	if want := n.Reward; want != nil {
		r := e.Event.GetRewardAssigned()
		return r != nil && r.GetTurn() == turn && float32(r.GetReward()) == float32(want.GetReward()) &&
			bytes.Equal(r.GetComponents(), want.GetComponents()) && r.GetRevision() == want.GetRevision() && r.GetSource() == want.GetSource()
	}
	a, want := e.Event.GetAnnotated(), n.Annotation
	return a != nil && a.GetTurn() == turn && (a.GetBranch() == "" || a.GetBranch() == n.Branch) && a.GetName() == want.GetName() &&
		bytes.Equal(a.GetValue(), want.GetValue()) && a.GetRevision() == want.GetRevision() && a.GetSource() == want.GetSource()
}

func sameBlob(a, b *event.Blob) bool {
	return a.GetKind() == b.GetKind() && bytes.Equal(a.GetSha256(), b.GetSha256()) && a.GetSize() == b.GetSize() && a.GetCodec() == b.GetCodec() &&
		a.GetUri() == b.GetUri() && a.GetDtype() == b.GetDtype() && slices.Equal(a.GetShape(), b.GetShape()) && a.GetStart() == b.GetStart()
}
