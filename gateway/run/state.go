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
	seen   map[string]bool // ids of events
	opened *event.RunOpened
	// order is the number of the last order, held what it says.
	order int64
	held  bool
	// serving are the gateways that may have turns under way, each with the place
	// of its last word in the log.
	serving map[string]uint64
}

func newState() state { return state{seen: map[string]bool{}, serving: map[string]uint64{}} }

func (s *state) apply(e journal.Entry) {
	s.tip = e.Tip
	if s.seen[e.Event.GetId()] {
		return
	}
	s.seen[e.Event.GetId()] = true
	switch b := e.Event.GetBody().(type) {
	case *event.Event_RunOpened:
		if s.opened == nil {
			s.opened = b.RunOpened
		}
	case *event.Event_RunFenced:
		s.order, s.held = b.RunFenced.GetOrder(), b.RunFenced.GetHeld()
	case *event.Event_RunServed:
		if b.RunServed.GetServing() {
			s.serving[b.RunServed.GetGateway()] = e.Tip.Count
		} else {
			delete(s.serving, b.RunServed.GetGateway())
		}
	}
}
