// Package run holds what a gateway knows of runs: what their sessions inherit,
// and the fence that holds turns back while weights change.
//
// All of it is in the run's log, which every gateway reads: an order to hold
// turns back, or to let them in again, is an event, and so is a gateway's word
// that it has begun to serve the run, or has none of its turns under way any
// more. What is in memory is a fold of these, no older than Lease.
package run

import (
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// state is the fold of a run's log.
type state struct {
	tip    journal.Tip
	opened *event.RunOpened
	// order is the number of the last order, held what it says.
	order int64
	held  bool
	// serving are the gateways that may have turns under way, each with the place
	// of its last word in the log.
	serving map[string]uint64
	// expected are the events that somebody here waits for, by id: a run's log
	// grows, and nobody asks for the others.
	expected map[string]*expected
}

// expected is an event that may be in the log, or come.
type expected struct {
	id    string
	users int
	seen  bool // it is in the log
}

func newState() state {
	return state{serving: map[string]uint64{}, expected: map[string]*expected{}}
}

// expect has apply look out for an event until as many call forget.
func (s *state) expect(id string) *expected {
	x := s.expected[id]
	if x == nil {
		x = &expected{id: id}
		s.expected[id] = x
	}
	x.users++
	return x
}

func (s *state) forget(x *expected) {
	if x.users--; x.users == 0 {
		delete(s.expected, x.id)
	}
}

func (s *state) apply(e journal.Entry) {
	s.tip = e.Tip
	if x := s.expected[e.Event.GetId()]; x != nil {
		x.seen = true
	}
	switch b := e.Event.GetBody().(type) {
	case *event.Event_RunOpened:
		if s.opened == nil {
			s.opened = b.RunOpened
		}
	case *event.Event_RunFenced:
		if b.RunFenced.GetOrder() > s.order {
			s.order, s.held = b.RunFenced.GetOrder(), b.RunFenced.GetHeld()
		}
	case *event.Event_RunServed:
		if b.RunServed.GetServing() {
			s.serving[b.RunServed.GetGateway()] = e.Tip.Count
		} else {
			delete(s.serving, b.RunServed.GetGateway())
		}
	}
}
