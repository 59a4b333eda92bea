// Package verify reads a session's turn log and its trajectory side by side and
// checks every promise that the recorder makes, with code of its own: it shares
// nothing with the fold but the format.
package verify

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// Promise names what was promised.
type Promise string

// The promises.
const (
	// Chain: ordinals have no gaps and the hash chain holds, in both streams.
	Chain Promise = "chain"
	// Once: each event has exactly one update, in the log's order.
	Once Promise = "once"
	// Exact: ids, logprobs and versions are those that were recorded, and the
	// trajectory rebuilds every turn.
	Exact Promise = "exact"
	// Told: openings, rewards and annotations are passed on as they were given.
	Told Promise = "told"
	// Graded: no turn has a better grade than its evidence allows whatever the
	// policy, and a branch that of its worst turn.
	Graded Promise = "graded"
	// Masked: only sampled tokens are trainable, each at most once; the counts of
	// masked ones agree, and what they are masked for is true of them.
	Masked Promise = "masked"
	// Sealed: a closed session is sealed, with its status and every branch, its label
	// and its numbers: one for each turn that no turn of its class goes on from.
	Sealed Promise = "sealed"
	// Balanced: generated = trainable + masked + lost, of a parked session as
	// well; generated is what the log holds, and each reason has the ids that
	// turns and branches say it of.
	Balanced Promise = "balanced"
	// Readable: both streams can be read.
	Readable Promise = "readable"
	// Exported: a row of a shard says what the trajectory says.
	Exported Promise = "exported"
)

// Finding is a promise that was not kept.
type Finding struct {
	Session string  `json:"session"`
	Promise Promise `json:"promise"`
	Detail  string  `json:"detail"`
}

func (f Finding) String() string {
	return fmt.Sprintf("session %s: %s: %s", f.Session, f.Promise, f.Detail)
}

// Report sums up a verification.
type Report struct {
	Sessions, Events, Turns, Tokens uint64
	// Released sessions were parked once and have been folded again: their last
	// round is what is verified.
	Released uint64
	// Parked sessions hold an event that could not be folded; Behind ones
	// events that have no update yet, which is no fault of a running recorder.
	Parked, Behind uint64
	Findings       []Finding
}

// Segment is a sequence of a branch, put together from the spans: up to the turn
// that ends it, because the next one keeps less, or because it is the last.
type Segment struct {
	Session, Branch string
	// Turns are the path up to the one that ends the segment; From is the index
	// in it of the turn that each id is of.
	Turns []string
	From  []int32

	IDs  []uint32
	Mask []int8
	// Logprobs are 0 from Bare on where a turn has none.
	Logprobs []float32
	Bare     int
	Versions []int32
	Grade    event.Grade
}

// Options say what to do besides counting.
type Options struct {
	// Behind allows events without an update at the end of a session.
	Behind bool
	// Segment is called for each segment of each branch of a sealed session, or of
	// those that Branch chooses by their ids.
	Segment func(Segment) error
	Branch  func(id string) bool
	// Policy is what masks are held against; nil is none. That the reasons for
	// masks are true of their turns is always checked.
	Policy *Policy
	// Progress is called after each session.
	Progress func(Report)
}

// Run verifies the given sessions, one after another. Broken promises are in
// the report; the error is for what stops the verification.
func Run(ctx context.Context, turns, trajectories journal.Journal, sessions iter.Seq2[string, error], o Options) (Report, error) {
	var r Report
	for id, err := range sessions {
		if err != nil {
			return r, fmt.Errorf("verify: list sessions: %w", err)
		}
		s := &session{id: id, report: &r, options: o}
		if err := s.verify(ctx, turns, trajectories); err != nil {
			return r, fmt.Errorf("verify: session %s: %w", id, err)
		}
		r.Sessions++
		if o.Progress != nil {
			o.Progress(r)
		}
	}
	return r, ctx.Err()
}

// session is one session under verification.
type session struct {
	id      string
	report  *Report
	options Options

	events  []journal.Entry // distinct ones
	updates []*event.TrajectoryUpdate
	parked  bool
	// earlier is set if a round before the last one was sealed well: rows may be
	// of that.
	earlier bool

	turns map[string]*turn
	seal  *event.SessionSealed
	lost  map[string]uint64 // by reason, before the seal
	late  uint64            // after it
	// branches in the order of the stream.
	branches []*event.BranchSealed
}

func (s *session) find(p Promise, format string, args ...any) {
	s.report.Findings = append(s.report.Findings, Finding{s.id, p, fmt.Sprintf(format, args...)})
}

func (s *session) verify(ctx context.Context, turns, trajectories journal.Journal) error {
	// In this order: what a recorder writes meanwhile is of events that are read
	// then, and not the other way round.
	out, err := s.read(ctx, trajectories, "trajectory")
	if err != nil {
		return err
	}
	in, err := s.read(ctx, turns, "turn log")
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, e := range in {
		if !seen[e.Event.GetId()] {
			seen[e.Event.GetId()] = true
			s.events = append(s.events, e)
		}
	}
	s.report.Events += uint64(len(s.events))
	out, ok := s.lastRound(out)
	if !ok || !s.once(out) {
		return nil
	}
	if s.parked {
		s.report.Parked++
		s.parkedLedger(out)
		return nil
	}
	s.exact()
	s.told()
	return s.sealed()
}

// read returns a session's entries and checks how they hang together.
func (s *session) read(ctx context.Context, j journal.Journal, name string) ([]journal.Entry, error) {
	var out []journal.Entry
	var chain event.Hash
	for e, err := range j.ReadSession(ctx, s.id, journal.Tip{}) {
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			s.find(Readable, "%s after event %d: %v", name, len(out), err)
			return out, nil
		}
		if chain = event.Chain(chain, event.Sum(e.Body)); chain != e.Tip.Chain || e.Tip.Count != uint64(len(out))+1 {
			s.find(Chain, "%s event %d", name, len(out))
			return out, nil
		}
		out = append(out, e)
	}
	return out, nil
}

// lastRound leaves out what releases of the session have made void, and checks
// that each was asked for: by an event of the log, once, for a parked session.
func (s *session) lastRound(out []journal.Entry) ([]journal.Entry, bool) {
	begin, round, parked := 0, uint32(0), false
	started, sealed := false, false // in any round so far; sealed well
	orders := map[string]bool{}
	for _, e := range s.events {
		if e.Event.GetSessionReleased() != nil {
			orders[e.Event.GetId()] = true
		}
	}
	for i, e := range out {
		u := e.Event.GetTrajectoryUpdate()
		for _, o := range u.GetOutputs() {
			parked = parked || o.GetFault() != nil
			started = started || o.GetSessionStarted() != nil
			sealed = sealed || o.GetSessionSealed() != nil && !parked
			again := o.GetSessionRestarted()
			if again == nil {
				continue
			}
			round++
			if again.GetStarted() != started || again.GetSealed() != sealed {
				s.find(Once, "update %d says of the rounds before: started %t, sealed %t; they were %t, %t", i, again.GetStarted(), again.GetSealed(), started, sealed)
			}
			order := u.GetInput().GetEvent()
			if !orders[order] || !parked || again.GetRound() != round {
				s.find(Once, "update %d begins round %d after event %s, which is no release of a parked session", i, again.GetRound(), order)
				return nil, false
			}
			delete(orders, order)
			begin, parked, s.earlier = i+1, false, again.GetSealed()
		}
	}
	if round > 0 {
		s.report.Released++
	}
	return out[begin:], true
}

// once pairs events with updates and reports whether they can be compared.
func (s *session) once(out []journal.Entry) bool {
	for i, e := range out {
		u := e.Event.GetTrajectoryUpdate()
		if u == nil {
			s.find(Once, "trajectory event %d is %s", i, e.Event.Kind())
			return false
		}
		for _, o := range u.GetOutputs() {
			s.parked = s.parked || o.GetFault() != nil
		}
		if s.parked {
			// From here on there is nothing to rely on.
			return true
		}
		if i >= len(s.events) {
			s.find(Once, "update %d of event %s has no event", i, u.GetInput().GetEvent())
			return false
		}
		in := s.events[i]
		if u.GetInput().GetEvent() != in.Event.GetId() || u.GetInput().GetKind() != string(in.Event.Kind()) || u.GetInput().GetOrdinal() != in.Ordinal() {
			s.find(Once, "update %d is of event %s, not %s", i, u.GetInput().GetEvent(), in.Event.GetId())
			return false
		}
		s.updates = append(s.updates, u)
	}
	if len(out) < len(s.events) {
		s.report.Behind++
		if !s.options.Behind {
			s.find(Once, "%d events have no update", len(s.events)-len(out))
		}
		s.events = s.events[:len(out)]
	}
	return true
}

// outputs yields what the updates say, with the event that they say it of.
func (s *session) outputs() iter.Seq2[journal.Entry, *event.Output] {
	return func(yield func(journal.Entry, *event.Output) bool) {
		for i, u := range s.updates {
			for _, o := range u.GetOutputs() {
				if !yield(s.events[i], o) {
					return
				}
			}
		}
	}
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
