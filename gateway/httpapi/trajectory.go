package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v5"

	"turnlog.dev/gateway"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/schema/tree"
)

// maxWait bounds how long a reader may wait for the recorder, and pollEvery is
// how often the trajectory stream is looked at meanwhile.
const (
	maxWait   = time.Minute
	pollEvery = 50 * time.Millisecond
)

// trajectory shows what the recorder made of a session: every branch, or the
// one that ?branch= names (a branch id, or the turn it ends in), with ids,
// mask, logprobs, weight versions, segments and grade. While the recorder has
// not caught up with the session it answers 202; ?wait=SECONDS waits for it.
func (a *api) trajectory(c *echo.Context) error {
	if a.deps.Trajectories == nil {
		return &gateway.Error{Kind: gateway.UnknownRoute, Message: "this gateway does not read trajectories"}
	}
	ctx, sess := c.Request().Context(), c.Param("session")
	wait := time.Duration(0)
	if text := c.QueryParam("wait"); text != "" {
		s, err := strconv.ParseFloat(text, 64)
		if err != nil || !(s >= 0) {
			return gateway.Invalidf("wait", "wait is a number of seconds")
		}
		wait = time.Duration(min(s, maxWait.Seconds()) * float64(time.Second))
	}
	var events uint64
	err := a.deps.Gateway.View(ctx, sess, func(t *tree.Tree, _ bool) error { events = t.Tip.Count; return nil })
	if err != nil {
		return err
	}
	s := newSpans()
	for deadline := time.Now().Add(wait); ; {
		if err := s.read(ctx, a.deps.Trajectories, sess); err != nil {
			return err
		}
		if s.recorded >= events || time.Now().After(deadline) {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
	if s.recorded < events {
		c.Response().Header().Set("Retry-After", "1")
		body := fmt.Appendf(nil, `{"session":%q,"state":"recording","events":%d,"recorded":%d}`+"\n", sess, events, s.recorded)
		return c.JSONBlob(http.StatusAccepted, body)
	}
	branches := s.branches()
	if want := c.QueryParam("branch"); want != "" {
		branches = slices.DeleteFunc(branches, func(b *event.BranchSealed) bool {
			return b.GetBranch() != want && b.End() != want
		})
		if len(branches) == 0 {
			return &gateway.Error{Kind: gateway.UnknownThing, Param: "branch", Message: fmt.Sprintf("the session has no branch %q", want)}
		}
	}
	return s.write(c, sess, branches)
}

// spans is the trajectory of one session as far as it was read.
type spans struct {
	tip      journal.Tip
	recorded uint64 // events of the turn stream that have an update
	turns    map[string]event.Tokens
	parents  map[string]string
	order    []string
	leaf     map[string]bool
	sealed   []*event.BranchSealed
	session  *event.SessionSealed
	reward   *event.RewardRecorded
}

func newSpans() *spans {
	return &spans{turns: map[string]event.Tokens{}, parents: map[string]string{}, leaf: map[string]bool{}}
}

// read takes what is new in the trajectory stream.
func (s *spans) read(ctx context.Context, j journal.Journal, sess string) error {
	for e, err := range j.ReadSession(ctx, sess, s.tip) {
		if err != nil {
			return err
		}
		s.tip = e.Tip
		u := e.Event.GetTrajectoryUpdate()
		if restarts(u) {
			*s = *newSpans()
			s.tip = e.Tip
			continue
		}
		s.recorded = max(s.recorded, u.GetInput().GetOrdinal()+1)
		for _, o := range u.GetOutputs() {
			switch o := o.GetOutput().(type) {
			case *event.Output_TurnSpans:
				t, err := o.TurnSpans.Tokens()
				if err != nil {
					return fmt.Errorf("trajectory of session %s, turn %s: %w", sess, o.TurnSpans.GetTurn(), err)
				}
				s.turns[t.GetTurn()], s.parents[t.GetTurn()], s.leaf[t.GetTurn()] = t, t.GetParent(), true
				s.order = append(s.order, t.GetTurn())
				delete(s.leaf, t.GetParent())
			case *event.Output_BranchSealed:
				s.sealed = append(s.sealed, o.BranchSealed)
			case *event.Output_SessionSealed:
				s.session = o.SessionSealed
			case *event.Output_RewardRecorded:
				if r := o.RewardRecorded; r.GetTurn() == "" && r.GetRevision() >= s.reward.GetRevision() {
					s.reward = r
				}
			}
		}
	}
	return nil
}

// restarts reports whether what was recorded before an update is void.
func restarts(u *event.TrajectoryUpdate) bool {
	return slices.ContainsFunc(u.GetOutputs(), func(o *event.Output) bool { return o.GetSessionRestarted() != nil })
}

// branches are the sealed ones, or, while the session is open, the paths to the
// leaves as they are now.
func (s *spans) branches() []*event.BranchSealed {
	if s.session != nil {
		return slices.Clone(s.sealed)
	}
	var out []*event.BranchSealed
	for _, id := range s.order {
		if !s.leaf[id] {
			continue
		}
		b := &event.BranchSealed{Label: "open", Class: s.turns[id].GetClass(), Leaf: id}
		depth := uint32(0)
		for at := id; at != ""; at = s.parents[at] {
			depth++
			b.Grade = max(b.GetGrade(), s.turns[at].GetGrade())
		}
		b.TrainRuns = []uint32{0, depth}
		out = append(out, b)
	}
	return out
}

// write streams the branches: a trajectory may be large, so only one branch is
// in memory at a time.
func (s *spans) write(c *echo.Context, sess string, branches []*event.BranchSealed) error {
	w := c.Response()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := rawjson.AppendText([]byte(`{"session":`), sess)
	state := "open"
	if s.session != nil {
		state = "sealed"
	}
	out = rawjson.AppendText(append(out, `,"state":`...), state)
	if s.session != nil {
		out = rawjson.AppendText(append(out, `,"status":`...), s.session.GetStatus())
	}
	if s.reward != nil {
		out = strconv.AppendFloat(append(out, `,"reward":`...), s.reward.GetReward(), 'g', -1, 64)
	}
	out = append(out, `,"branches":[`...)
	for i, b := range branches {
		if i > 0 {
			out = append(out, ',')
		}
		path, err := b.Path(s.parents)
		if err != nil {
			return fmt.Errorf("trajectory of session %s: %w", sess, err)
		}
		out = s.appendBranch(out, b, path)
		if _, err := w.Write(out); err != nil {
			return nil //nolint:nilerr // the reader is gone
		}
		out = out[:0]
	}
	_, _ = w.Write(append(out, "]}\n"...))
	return nil
}

func (s *spans) appendBranch(dst []byte, b *event.BranchSealed, path event.Path) []byte {
	var shared []string
	var ids []uint32
	var mask []int8
	var logprobs []float32
	var versions []int32
	var segments []segment
	complete := true // every turn has logprobs
	for i, id := range path.Turns {
		t := s.turns[id]
		if !path.Trained[i] && t.Trainable() > 0 {
			shared = append(shared, id)
		}
		keep := int(t.GetKeep())
		ids = t.AppendIDs(cut(ids, keep))
		mask = t.AppendMask(cut(mask, keep))
		versions = t.AppendVersions(cut(versions, keep))
		logprobs = t.AppendLogprobs(cut(logprobs, keep))
		complete = complete && t.HasLogprobs()
		segments = keepSegments(segments, keep)
		at := keep
		for _, x := range t.GetSpans() {
			end := at + int(x.GetCount())
			segments = append(segments, segment{at, end, provenance(x.GetProvenance()), id})
			at = end
		}
	}
	dst = rawjson.AppendText(append(dst, `{"branch":`...), b.GetBranch())
	dst = rawjson.AppendText(append(dst, `,"label":`...), b.GetLabel())
	dst = rawjson.AppendText(append(dst, `,"class":`...), b.GetClass())
	dst = rawjson.AppendText(append(dst, `,"grade":`...), grade(b.GetGrade()))
	dst = appendTexts(append(dst, `,"grade_reasons":`...), b.GetGradeReasons())
	dst = appendTexts(append(dst, `,"turns":`...), path.Turns)
	dst = appendTexts(append(dst, `,"shared":`...), shared)
	dst = appendNumbers(append(dst, `,"ids":`...), ids)
	dst = appendNumbers(append(dst, `,"mask":`...), mask)
	dst = append(dst, `,"logprobs":`...)
	if complete {
		dst = append(dst, '[')
		for i, f := range logprobs {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendFloat(dst, float64(f), 'g', -1, 32)
		}
		dst = append(dst, ']')
	} else {
		dst = append(dst, "null"...)
	}
	dst = appendNumbers(append(dst, `,"versions":`...), versions)
	dst = append(dst, `,"segments":[`...)
	for i, x := range segments {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(append(dst, `{"start":`...), int64(x.start), 10)
		dst = strconv.AppendInt(append(dst, `,"end":`...), int64(x.end), 10)
		dst = rawjson.AppendText(append(dst, `,"source":`...), x.source)
		dst = append(rawjson.AppendText(append(dst, `,"turn":`...), x.turn), '}')
	}
	return append(dst, "]}"...)
}

// segment is a run of a branch's tokens with one source, half open.
type segment struct {
	start, end   int
	source, turn string
}

// keepSegments cuts segments to the first n tokens.
func keepSegments(list []segment, n int) []segment {
	for len(list) > 0 && list[len(list)-1].start >= n {
		list = list[:len(list)-1]
	}
	if len(list) > 0 {
		last := &list[len(list)-1]
		last.end = min(last.end, n)
	}
	return list
}

func cut[T any](list []T, n int) []T { return list[:min(n, len(list))] }

func provenance(p event.Provenance) string {
	return strings.ToLower(strings.TrimPrefix(p.String(), "PROVENANCE_"))
}

func grade(g event.Grade) string { return strings.TrimPrefix(g.String(), "GRADE_") }

func appendTexts(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendText(dst, s)
	}
	return append(dst, ']')
}

func appendNumbers[T int8 | uint32 | int32](dst []byte, list []T) []byte {
	dst = append(dst, '[')
	for i, n := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(n), 10)
	}
	return append(dst, ']')
}
