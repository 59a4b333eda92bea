package tree

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
)

// Turn is one model call in the tree.
type Turn struct {
	ID      string
	Ordinal uint64
	At      time.Time
	// Parent is the turn that this one continues, nil for a root: the prompt
	// begins with the first Keep of its ids.
	Parent   *Turn
	Keep     int
	Children []*Turn
	// PromptLen is the number of prompt ids, Len that and the completion's.
	PromptLen, Len int
	// Committed is the event. A holder that needs no logprobs may drop them
	// from it.
	Committed *event.TurnCommitted
	// Added are the messages that come after those kept of the parent's
	// conversation, and Answer is the turn's own, where the holder has them so;
	// see Hold.
	Added  []message.Message
	Answer message.Message

	held     bool
	base     *Turn
	baseKeep int
	messages int // before the answer, leading system messages not counted
}

// BranchID names the branch of a session that ends in a turn: the first 16 bytes
// of sha256(session, 0, turn) in hex.
func BranchID(session, leaf string) string {
	h := sha256.Sum256([]byte(session + "\x00" + leaf))
	return hex.EncodeToString(h[:16])
}

// IDs appends the first n ids of the turn, prompt then completion, to dst.
func (t *Turn) IDs(dst []uint32, n int) []uint32 {
	return t.Slice(dst, 0, n)
}

// Slice appends the ids from place from up to place to, which it does not
// include, to dst.
func (t *Turn) Slice(dst []uint32, from, to int) []uint32 {
	n := max(0, min(to, t.Len)-from)
	start := len(dst)
	dst = slices.Grow(dst, n)[:start+n]
	t.fill(dst[start:], from)
	return dst
}

// PromptIDs appends the prompt's ids to dst.
func (t *Turn) PromptIDs(dst []uint32) []uint32 { return t.IDs(dst, t.PromptLen) }

// fill writes the ids from a place on, as many as out holds. It walks the bases
// from the end to the beginning, so that each id is written once however long
// the chain is.
func (t *Turn) fill(out []uint32, from int) {
	for n := t; n != nil && len(out) > 0; n = n.base {
		own := n.baseKeep - from // where the turn's own ids begin in out
		if own >= len(out) {
			continue
		}
		at := own
		for _, s := range n.Committed.GetSegments() {
			at += put(out, at, s.GetIds())
		}
		put(out, at, n.Committed.GetCompletion().GetIds())
		out = out[:max(0, own)]
	}
}

// put writes ids at place at of out, as far as they are in it, and returns how
// many they are.
func put(out []uint32, at int, ids []byte) int {
	n := event.Count(ids)
	if at < 0 {
		ids = ids[4*min(n, -at):]
	}
	if at < len(out) {
		event.PutIDs(out[max(0, at):], ids)
	}
	return n
}

// Hold keeps what was said as messages, and drops their encoding from Committed.
func (t *Turn) Hold(added []message.Message, answer message.Message) {
	t.Added, t.Answer, t.held = added, answer, true
	if conv := t.Committed.GetConversation(); conv != nil {
		conv.Messages, conv.Answer = nil, nil
	}
}

// said is the message i of those that the turn added, the answer last.
func (t *Turn) said(i int) (message.Message, error) {
	conv := t.Committed.GetConversation()
	switch last := t.messages - int(conv.GetKeep()); {
	case t.held && i == last:
		return t.Answer, nil
	case t.held:
		return t.Added[i], nil
	case i == last:
		return message.Parse(conv.GetAnswer())
	default:
		return message.Parse(conv.GetMessages()[i])
	}
}

// Written is the text of the answer as the engine wrote it: the content of the
// answer, where the event does not say that it was another.
func (t *Turn) Written() (string, error) {
	if text := t.Committed.GetCompletion().GetText(); text != "" {
		return text, nil
	}
	answer, err := t.said(t.messages - int(t.Committed.GetConversation().GetKeep()))
	return answer.Content.String(), err
}

// Messages returns the conversation that the turn answers, without the leading
// system messages, and the answer as its last element.
func (t *Turn) Messages() ([]message.Message, error) {
	out := make([]message.Message, t.messages+1)
	end := t.messages + 1 // messages still wanted
	for n := t; n != nil && end > 0; n = n.Parent {
		keep := int(n.Committed.GetConversation().GetKeep())
		for i := keep; i < end && i <= n.messages; i++ {
			m, err := n.said(i - keep)
			if err != nil {
				return nil, fmt.Errorf("tree: turn %s: message %d: %w", n.ID, i, err)
			}
			out[i] = m
		}
		end = min(end, keep)
	}
	return out, nil
}

// MessageCount is the number of messages that the turn answers, leading system
// messages not counted.
func (t *Turn) MessageCount() int { return t.messages }

// Path returns the turns from the root to this one.
func (t *Turn) Path() []*Turn {
	n := 0
	for p := t; p != nil; p = p.Parent {
		n++
	}
	path := make([]*Turn, n)
	for p := t; p != nil; p = p.Parent {
		n--
		path[n] = p
	}
	return path
}
