package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"

	"turnlog.dev/gateway/session"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/schema/tree"
	"turnlog.dev/tokenizer/prompt"
)

// OpenRequest says what a new session is for.
type OpenRequest struct {
	// Session is the id; empty mints one, the same one each time for the same
	// group, index and attempt.
	Session string
	Run     string
	Opened  *event.SessionOpened
}

// Opened is an open session.
type Opened struct {
	Session, Run, Key string
	// Created is false when the session existed already.
	Created bool
}

// DefaultRun is the run of sessions that name none.
const DefaultRun = "default"

// Open opens a session, or returns the one that was opened with the same id.
// It fails with Conflict if that one is of another run, group, index or
// attempt.
func (g *Gateway) Open(ctx context.Context, r OpenRequest) (Opened, error) {
	if r.Run == "" {
		r.Run = DefaultRun
	}
	o, fresh := r.Opened, false
	if r.Session == "" && o.GetGroup() != "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d\x00%d", g.cfg.Tenant, r.Run, o.GetGroup(), o.GetIndex(), o.GetAttempt()))
		r.Session = "s-" + encoding.EncodeToString(sum[:])[:24]
	} else if r.Session == "" {
		r.Session, fresh = "s-"+g.deps.NewID(), true
	}
	if !ValidName(r.Session) {
		return Opened{}, Invalidf("session", "a session id is 1 to 64 of A-Z, a-z, 0-9, _ and -")
	}
	if !ValidName(r.Run) {
		return Opened{}, Invalidf("run", "a run is 1 to 64 of A-Z, a-z, 0-9, _ and -")
	}
	if len(o.GetMetadata()) > 0 && rawjson.KindOf(o.GetMetadata()) != rawjson.Object {
		return Opened{}, Invalidf("metadata", "metadata must be a JSON object")
	}
	if o.GetGroupSize() > 0 && o.GetIndex() >= o.GetGroupSize() {
		return Opened{}, Invalidf("index", "index %d is not below group_size %d", o.GetIndex(), o.GetGroupSize())
	}
	inherited, err := g.inherited(ctx, r.Run, Policy{o.GetModelPolicy(), o.GetLimits()})
	if err != nil {
		return Opened{}, err
	}
	o.ModelPolicy, o.Limits = inherited.Model, inherited.Limits
	if err := g.possible(inherited); err != nil {
		return Opened{}, err
	}
	key := g.deps.Keys.Session(g.cfg.Tenant, r.Session)
	o.KeyHash = keyHash(key)
	ev := g.event("open", r.Run, r.Session)
	ev.Body = &event.Event_SessionOpened{SessionOpened: o}
	out := Opened{Session: r.Session, Run: r.Run, Key: key}
	err = g.sessions.Open(ctx, ev, fresh, func(s *session.Session, created bool) error {
		out.Created = created
		return s.View(func(t *tree.Tree) error {
			was := t.Opened
			if t.Run != r.Run || was.GetGroup() != o.GetGroup() || was.GetIndex() != o.GetIndex() || was.GetAttempt() != o.GetAttempt() {
				return &Error{Kind: Conflict, Message: fmt.Sprintf("session %q exists with another run, group, index or attempt", r.Session)}
			}
			if !sameKey(key, was.GetKeyHash()) {
				return &Error{Kind: Conflict, Message: fmt.Sprintf("session %q was opened by gateways with another key seed", r.Session)}
			}
			return nil
		})
	})
	return out, err
}

// possible reports what of a policy cannot be kept here.
func (g *Gateway) possible(p Policy) error {
	if name := p.Model.GetModel(); name != "" {
		m, err := g.deps.Models.Named(name)
		if err != nil {
			return err
		}
		if _, err := m.under(prompt.Policy(p.Model.GetHistory())); err != nil {
			return err
		}
	}
	// A generation is not idleness, but the log says nothing while it lasts.
	if idle, longest := p.Limits.GetIdleSeconds(), g.cfg.GenerateTimeout.Seconds(); idle > 0 && idle <= int64(longest) {
		return Invalidf("limits.idle_seconds", "idle_seconds must be more than the longest generation, which is %.0f s here", longest)
	}
	return nil
}

// Authorize checks a key: an admin key opens every door, a session key that of
// its session. sess is the session that the caller wants, or empty for the
// key's own; the session to use is returned.
func (g *Gateway) Authorize(ctx context.Context, key, sess string) (string, error) {
	if key == "" {
		return "", &Error{Kind: Unauthorized, Message: "no API key; send a session key or an admin key as a bearer token"}
	}
	if g.deps.Keys.IsAdmin(key) {
		if sess == "" {
			return "", &Error{Kind: Invalid, Message: "an admin key names no session; use /sessions/{id}/v1 or a session key"}
		}
		return sess, nil
	}
	own, ok := SessionOf(key)
	if !ok {
		return "", &Error{Kind: Unauthorized, Message: "unknown API key"}
	}
	err := g.sessions.Use(ctx, own, func(s *session.Session) error {
		return s.View(func(t *tree.Tree) error {
			if !sameKey(key, t.Opened.GetKeyHash()) {
				return &Error{Kind: Unauthorized, Message: "unknown API key"}
			}
			return nil
		})
	})
	if errors.Is(err, session.ErrUnknown) {
		err = &Error{Kind: Unauthorized, Message: "unknown API key"}
	}
	if err == nil && sess != "" && sess != own {
		err = &Error{Kind: Forbidden, Message: "this key is for another session"}
	}
	return own, err
}

// IsAdmin reports whether key is an admin key.
func (g *Gateway) IsAdmin(key string) bool { return g.deps.Keys.IsAdmin(key) }

// Models returns the models that the gateway serves.
func (g *Gateway) Models() *Models { return g.deps.Models }

// forgetter is a pool that keeps something for each session: which replica
// holds its prefix.
type forgetter interface {
	Forget(session string)
}

// Close closes a session. A session that is closed already stays as it is.
func (g *Gateway) Close(ctx context.Context, sess, reason, detail string) error {
	err := g.change(ctx, sess, "close", func(t *tree.Tree, ev *event.Event) error {
		if t.Closed != nil {
			return errUnchanged
		}
		ev.Body = &event.Event_SessionClosed{SessionClosed: &event.SessionClosed{Reason: reason, Detail: detail}}
		return nil
	})
	for _, m := range g.deps.Models.List() {
		if p, ok := m.Pool.(forgetter); ok && err == nil {
			p.Forget(sess)
		}
	}
	return err
}

// Reward assigns a reward to a session or one of its turns. Without a revision
// it gets the one after the highest, or none of its own if it says what the
// highest says, as with a revision if that one says it: a caller that did not
// get its answer can say it again.
func (g *Gateway) Reward(ctx context.Context, sess string, r *event.RewardAssigned) error {
	if math.IsNaN(r.GetReward()) || math.IsInf(r.GetReward(), 0) {
		return Invalidf("reward", "a reward must be a finite number")
	}
	asked := r.GetRevision()
	return g.change(ctx, sess, "reward-"+g.deps.NewID(), func(t *tree.Tree, ev *event.Event) error {
		if r.GetTurn() != "" && t.Turn(r.GetTurn()) == nil {
			return &Error{Kind: UnknownThing, Param: "turn", Message: fmt.Sprintf("the session has no turn %q", r.GetTurn())}
		}
		var said bool
		r.Revision, said = revision(asked, t.Rewards,
			func(was *event.RewardAssigned) bool { return was.GetTurn() == r.GetTurn() },
			func(was *event.RewardAssigned) bool {
				return was.GetReward() == r.GetReward() && was.GetSource() == r.GetSource() && bytes.Equal(was.GetComponents(), r.GetComponents())
			})
		if said {
			return errUnchanged
		}
		ev.Body = &event.Event_RewardAssigned{RewardAssigned: r}
		return nil
	})
}

// mayEnd reports whether the branch is one that a turn ends, or would if the
// session were closed now or had been then.
func mayEnd(t *tree.Tree, branch string) bool {
	return slices.ContainsFunc(t.Turns, func(n *tree.Turn) bool { return tree.BranchID(t.Session, n.ID) == branch })
}

// Annotate attaches a named JSON value to a session, or to one of its turns or
// branches. Its revision is found as that of a reward, by name and place.
func (g *Gateway) Annotate(ctx context.Context, sess string, a *event.Annotated) error {
	if a.GetName() == "" {
		return Invalidf("name", "an annotation needs a name")
	}
	if err := rawjson.Valid(a.GetValue()); err != nil {
		return Invalidf("value", "value must be JSON: %s", err)
	}
	asked := a.GetRevision()
	return g.change(ctx, sess, "annotation-"+g.deps.NewID(), func(t *tree.Tree, ev *event.Event) error {
		if a.GetTurn() != "" && t.Turn(a.GetTurn()) == nil {
			return &Error{Kind: UnknownThing, Param: "turn", Message: fmt.Sprintf("the session has no turn %q", a.GetTurn())}
		}
		if a.GetBranch() != "" && !mayEnd(t, a.GetBranch()) {
			return &Error{Kind: UnknownThing, Param: "branch", Message: fmt.Sprintf("no turn of the session ends a branch %q", a.GetBranch())}
		}
		var said bool
		a.Revision, said = revision(asked, t.Annotations,
			func(was *event.Annotated) bool {
				return was.GetName() == a.GetName() && was.GetTurn() == a.GetTurn() && was.GetBranch() == a.GetBranch()
			},
			func(was *event.Annotated) bool {
				return was.GetSource() == a.GetSource() && bytes.Equal(was.GetValue(), a.GetValue())
			})
		if said {
			return errUnchanged
		}
		ev.Body = &event.Event_Annotated{Annotated: a}
		return nil
	})
}

// revised is what has revisions.
type revised interface{ GetRevision() int64 }

// revision returns the revision of what is to be said about a place: the one
// that is asked for, else the one after the highest. said reports that the
// revision asked for, else the highest, says the same already: then that one is
// returned.
func revision[E revised](asked int64, list []E, there, same func(E) bool) (n int64, said bool) {
	var latest E
	found := false
	for _, was := range list {
		counts := there(was) && (asked == 0 || was.GetRevision() == asked)
		if counts && (!found || was.GetRevision() >= latest.GetRevision()) {
			latest, found = was, true
		}
	}
	switch {
	case found && same(latest):
		return latest.GetRevision(), true
	case asked > 0:
		return asked, false
	case found:
		return latest.GetRevision() + 1, false
	default:
		return 1, false
	}
}

// DeliveryFailed records that the answer of a turn could not be written.
func (g *Gateway) DeliveryFailed(ctx context.Context, sess, turn string, cause error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.cfg.AppendTimeout)
	defer cancel()
	err := g.change(ctx, sess, "undelivered-"+turn, func(_ *tree.Tree, ev *event.Event) error {
		ev.Body = &event.Event_DeliveryFailed{DeliveryFailed: &event.DeliveryFailed{Turn: turn, Error: cause.Error()}}
		return nil
	})
	if err != nil {
		g.deps.Log.ErrorContext(ctx, "failed delivery not recorded", "session", sess, "turn", turn, "error", err)
	}
}

// View runs fn with the tree of a session, as far as this gateway knows it
// after a look at the log; a session that left the log for the archive is read
// from there, and trimmed. fn must not keep the tree, but for its turns.
func (g *Gateway) View(ctx context.Context, sess string, fn func(t *tree.Tree, trimmed bool) error) error {
	err := g.sessions.Use(ctx, sess, func(s *session.Session) error {
		if err := s.CatchUp(ctx); err != nil {
			return err
		}
		return s.View(func(t *tree.Tree) error { return fn(t, false) })
	})
	if g.deps.Archive == nil || !errors.Is(err, journal.ErrTrimmed) {
		return err
	}
	t := tree.New(sess)
	for e, err := range g.deps.Archive.ReadSession(ctx, sess, journal.Tip{}) {
		if err == nil {
			err = t.Apply(e)
		}
		if err != nil {
			return fmt.Errorf("session %s: read the archive: %w", sess, err)
		}
	}
	if t.Opened == nil {
		return err
	}
	return fn(t, true)
}

// Said returns the answer of a turn. Only one that this gateway does not know
// yet costs a look at the log.
func (g *Gateway) Said(ctx context.Context, sess, turn string) (m message.Message, ok bool) {
	err := g.sessions.Use(ctx, sess, func(s *session.Session) (err error) {
		for range 2 {
			err = s.View(func(t *tree.Tree) error {
				if n := t.Turn(turn); n != nil {
					m, ok = n.Answer, true
				}
				return nil
			})
			if ok || err != nil {
				return err
			}
			if err = s.CatchUp(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return m, ok && err == nil
}

var errUnchanged = errors.New("gateway: nothing to change")

// limitError names the limit that a session has reached.
type limitError string

func (e limitError) Error() string {
	return "gateway: the session's limit of " + string(e) + " is reached"
}

// change appends one event of the given id to a session; fill sets its body
// for the tree as it is.
func (g *Gateway) change(ctx context.Context, sess, id string, fill func(*tree.Tree, *event.Event) error) error {
	err := g.sessions.Use(ctx, sess, func(s *session.Session) error {
		return s.Append(ctx, func(t *tree.Tree) (*event.Event, error) {
			ev := g.event(id, t.Run, sess)
			return ev, fill(t, ev)
		})
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// admit says whether a session takes another turn.
func (g *Gateway) admit(t *tree.Tree) error {
	if t.Closed != nil {
		return fmt.Errorf("%w: %s", session.ErrClosed, t.Closed.GetReason())
	}
	l := t.Opened.GetLimits()
	switch {
	case l.GetTurns() > 0 && int64(len(t.Turns)) >= l.GetTurns():
		return limitError("turns")
	case l.GetTokens() > 0 && int64(t.NewIDs()) >= l.GetTokens():
		return limitError("tokens")
	case l.GetWallSeconds() > 0 && g.deps.Now().Sub(t.OpenedAt).Seconds() >= float64(l.GetWallSeconds()):
		return limitError("wall")
	}
	return nil
}

// closeAtLimit closes a session that is past a limit and returns what to tell
// the client.
func (g *Gateway) closeAtLimit(ctx context.Context, s *session.Session, reached limitError) error {
	reason := "limit_" + string(reached)
	err := s.Append(ctx, func(t *tree.Tree) (*event.Event, error) {
		if t.Closed != nil {
			return nil, nil
		}
		ev := g.event("close", t.Run, s.ID())
		ev.Body = &event.Event_SessionClosed{SessionClosed: &event.SessionClosed{Reason: reason}}
		return ev, nil
	})
	if err != nil {
		return err
	}
	return &Error{Kind: Limited, Message: "the session reached its limit of " + string(reached) + " and is closed"}
}
