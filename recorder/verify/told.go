package verify

import (
	"bytes"
	"math"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// told checks that what is passed on without a judgement says what was said.
func (s *session) told() {
	for i, u := range s.updates {
		e := s.events[i]
		var same func(*event.Output) bool
		switch b := e.Event.GetBody().(type) {
		case *event.Event_SessionOpened:
			same = func(o *event.Output) bool { return sameOpening(b.SessionOpened, o.GetSessionStarted()) }
		case *event.Event_RewardAssigned:
			same = func(o *event.Output) bool { return sameReward(b.RewardAssigned, o.GetRewardRecorded()) }
		case *event.Event_Annotated:
			same = func(o *event.Output) bool { return sameAnnotation(b.Annotated, o.GetAnnotationRecorded()) }
		default:
			s.silent(e, u)
			continue
		}
		if len(u.GetOutputs()) != 1 || !same(u.GetOutputs()[0]) {
			s.find(Told, "event %s, %s, is not passed on as it is", e.Event.GetId(), e.Event.Kind())
		}
	}
}

// silent finds an opening, a reward or an annotation that nobody gave.
func (s *session) silent(e journal.Entry, u *event.TrajectoryUpdate) {
	for _, o := range u.GetOutputs() {
		if o.GetSessionStarted() != nil || o.GetRewardRecorded() != nil || o.GetAnnotationRecorded() != nil {
			s.find(Told, "event %s, %s, tells an opening, a reward or an annotation", e.Event.GetId(), e.Event.Kind())
		}
	}
}

func sameOpening(o *event.SessionOpened, s *event.SessionStarted) bool {
	return s != nil &&
		o.GetGroup() == s.GetGroup() && o.GetIndex() == s.GetIndex() && o.GetAttempt() == s.GetAttempt() &&
		o.GetGroupSize() == s.GetGroupSize() && o.GetTask() == s.GetTask() && o.GetDataSource() == s.GetDataSource() &&
		o.GetSplit() == s.GetSplit() && bytes.Equal(o.GetMetadata(), s.GetMetadata())
}

func sameReward(a *event.RewardAssigned, r *event.RewardRecorded) bool {
	return r != nil &&
		math.Float64bits(a.GetReward()) == math.Float64bits(r.GetReward()) && bytes.Equal(a.GetComponents(), r.GetComponents()) &&
		a.GetTurn() == r.GetTurn() && a.GetRevision() == r.GetRevision() && a.GetSource() == r.GetSource()
}

func sameAnnotation(a *event.Annotated, r *event.AnnotationRecorded) bool {
	return r != nil &&
		a.GetName() == r.GetName() && bytes.Equal(a.GetValue(), r.GetValue()) && a.GetTurn() == r.GetTurn() &&
		a.GetBranch() == r.GetBranch() && a.GetRevision() == r.GetRevision() && a.GetSource() == r.GetSource()
}
