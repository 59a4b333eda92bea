package gateway

import (
	"bytes"
	"context"
	"fmt"

	"turnlog.dev/gateway/run"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/rawjson"
)

// OpenRun opens a run: a namespace for sessions, with a policy that they inherit
// (see ParsePolicy) and metadata, a JSON object. Runs need not be opened;
// opening one again as it is changes nothing.
func (g *Gateway) OpenRun(ctx context.Context, name string, opened *event.RunOpened) error {
	policy, err := ParsePolicy(opened.GetPolicy())
	if err == nil {
		err = g.possible(policy)
	}
	if err != nil {
		return Invalidf("policy", "policy: %s", err)
	}
	if m := opened.GetMetadata(); len(m) > 0 && rawjson.KindOf(m) != rawjson.Object {
		return Invalidf("metadata", "metadata must be a JSON object")
	}
	return g.useRun(name, func(r *run.Run) error {
		ev := g.event("open", name, journal.RunSession(name))
		ev.Body = &event.Event_RunOpened{RunOpened: opened}
		if err := r.Open(ctx, ev); err != nil {
			return err
		}
		was, err := r.Opened(ctx)
		if err == nil && !(bytes.Equal(was.GetPolicy(), opened.GetPolicy()) && bytes.Equal(was.GetMetadata(), opened.GetMetadata())) {
			err = &Error{Kind: Conflict, Message: fmt.Sprintf("the run %q was opened with another policy or other metadata", name)}
		}
		return err
	})
}

// UpdateWeights records that engines sample with new weights from now on: label
// is what they report for the version. Saying it again changes nothing.
func (g *Gateway) UpdateWeights(ctx context.Context, name string, w *event.WeightsUpdated) error {
	if w.GetVersion() < 0 {
		return Invalidf("version", "version must be an integer from 0 on")
	}
	if w.GetLabel() == "" {
		w.Label = fmt.Sprint(w.GetVersion())
	}
	return g.useRun(name, func(r *run.Run) error {
		ev := g.event(fmt.Sprintf("weights-%d-%s", w.GetVersion(), w.GetLabel()), name, journal.RunSession(name))
		ev.Body = &event.Event_WeightsUpdated{WeightsUpdated: w}
		return r.Append(ctx, ev)
	})
}

// Pause holds back new turns of a run at every gateway; those under way go on.
func (g *Gateway) Pause(ctx context.Context, name string) error {
	return g.useRun(name, func(r *run.Run) error { return r.Hold(ctx, true) })
}

// Drain pauses a run and waits until none of its turns is under way at any
// gateway. It returns the gateways that it did not wait for, since they say
// nothing any more: killed ones.
func (g *Gateway) Drain(ctx context.Context, name string) (gone []string, err error) {
	err = g.useRun(name, func(r *run.Run) error {
		gone, err = r.Drain(ctx)
		return err
	})
	return gone, err
}

// Resume lets the turns of a run in again.
func (g *Gateway) Resume(ctx context.Context, name string) error {
	return g.useRun(name, func(r *run.Run) error { return r.Hold(ctx, false) })
}

// inherited lays what a session says for itself over what its run says.
func (g *Gateway) inherited(ctx context.Context, name string, own Policy) (p Policy, err error) {
	err = g.useRun(name, func(r *run.Run) error {
		opened, err := r.Opened(ctx)
		if err != nil {
			return err
		}
		p, err = ParsePolicy(opened.GetPolicy())
		return err
	})
	return p.with(own), err
}

func (g *Gateway) useRun(name string, fn func(*run.Run) error) error {
	if !ValidName(name) {
		return Invalidf("run", "a run is 1 to 64 of A-Z, a-z, 0-9, _ and -")
	}
	return g.runs.Use(name, fn)
}
