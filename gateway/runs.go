package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/rawjson"
)

// OpenRun opens a run: a namespace for sessions, with a policy and metadata
// (JSON objects). Runs need not be opened; opening one again changes nothing.
func (g *Gateway) OpenRun(ctx context.Context, run string, opened *event.RunOpened) error {
	if !ValidName(run) {
		return Invalidf("run", "a run is 1 to 64 of A-Z, a-z, 0-9, _ and -")
	}
	for name, raw := range map[string][]byte{"policy": opened.GetPolicy(), "metadata": opened.GetMetadata()} {
		if len(raw) > 0 && rawjson.KindOf(raw) != rawjson.Object {
			return Invalidf(name, "%s must be a JSON object", name)
		}
	}
	ev := g.event("open", run, journal.RunSession(run))
	ev.Body = &event.Event_RunOpened{RunOpened: opened}
	return g.appendToRun(ctx, ev)
}

// UpdateWeights records that engines sample with new weights from now on: label
// is what they report for the version. Saying it again changes nothing.
func (g *Gateway) UpdateWeights(ctx context.Context, run string, w *event.WeightsUpdated) error {
	if !ValidName(run) {
		return Invalidf("run", "a run is 1 to 64 of A-Z, a-z, 0-9, _ and -")
	}
	if w.GetVersion() < 0 {
		return Invalidf("version", "version must be an integer from 0 on")
	}
	if w.GetLabel() == "" {
		w.Label = fmt.Sprint(w.GetVersion())
	}
	ev := g.event(fmt.Sprintf("weights-%d-%s", w.GetVersion(), w.GetLabel()), run, journal.RunSession(run))
	ev.Body = &event.Event_WeightsUpdated{WeightsUpdated: w}
	return g.appendToRun(ctx, ev)
}

// appendToRun appends an event to a run's log, unless one of that id is there.
func (g *Gateway) appendToRun(ctx context.Context, ev *event.Event) error {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.AppendTimeout)
	defer cancel()
	var tip journal.Tip
	for {
		for e, err := range g.deps.Journal.ReadSession(ctx, ev.GetSession(), tip) {
			if err != nil {
				return err
			}
			tip = e.Tip
			if e.Event.GetId() == ev.GetId() {
				return nil
			}
		}
		_, err := g.deps.Journal.Append(ctx, tip, ev)
		if !errors.Is(err, journal.ErrConflict) {
			return err
		}
	}
}

// fences hold back the turns of runs whose weights are being changed.
type fences struct {
	mu   sync.Mutex
	runs map[string]*fence
}

type fence struct {
	running int
	idle    chan struct{} // closed when running falls to 0; nil while nobody waits
	open    chan struct{} // closed when turns may pass; nil while they may
}

func (f *fences) of(run string) *fence {
	if f.runs == nil {
		f.runs = map[string]*fence{}
	}
	if f.runs[run] == nil {
		f.runs[run] = &fence{}
	}
	return f.runs[run]
}

// enter waits until turns of a run may pass, and counts one in. The caller
// calls leave when the turn has ended.
func (f *fences) enter(ctx context.Context, run string) (leave func(), err error) {
	f.mu.Lock()
	for {
		n := f.of(run)
		if n.open == nil {
			n.running++
			f.mu.Unlock()
			return func() { f.leave(run) }, nil
		}
		wait := n.open
		f.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		f.mu.Lock()
	}
}

func (f *fences) leave(run string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.of(run)
	if n.running--; n.running == 0 {
		if n.idle != nil {
			close(n.idle)
			n.idle = nil
		}
		if n.open == nil {
			delete(f.runs, run)
		}
	}
}

// Pause holds back new turns of a run at this gateway; those under way go on.
func (g *Gateway) Pause(run string) {
	g.fences.mu.Lock()
	defer g.fences.mu.Unlock()
	if n := g.fences.of(run); n.open == nil {
		n.open = make(chan struct{})
	}
}

// Drain pauses a run and waits until none of its turns is under way here.
func (g *Gateway) Drain(ctx context.Context, run string) error {
	g.Pause(run)
	g.fences.mu.Lock()
	n := g.fences.of(run)
	if n.running == 0 {
		g.fences.mu.Unlock()
		return nil
	}
	if n.idle == nil {
		n.idle = make(chan struct{})
	}
	wait := n.idle
	g.fences.mu.Unlock()
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Resume lets the turns of a run pass again.
func (g *Gateway) Resume(run string) {
	g.fences.mu.Lock()
	defer g.fences.mu.Unlock()
	n := g.fences.of(run)
	if n.open != nil {
		close(n.open)
		n.open = nil
	}
	if n.running == 0 {
		delete(g.fences.runs, run)
	}
}
