// Package reaper closes sessions that are past their limits.
//
// Time is the log's: a session has been idle since the log's time of its last
// event, and now is the server's clock, so that no clock of a gateway or a
// recorder matters. The close is an append like any other, fenced by the tip of
// the session that was judged: if the agent came back in the meantime the fence
// refuses, and the session is judged again.
package reaper

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"turnlog.dev/recorder/registry"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/tree"
)

// Reasons of SessionClosed that the reaper gives.
const (
	LimitWall = "limit_wall"
	LimitIdle = "limit_idle"
)

// Config bounds the life of sessions. A session's own limits apply as well:
// the lower one counts.
type Config struct {
	// Every is the pause between two rounds.
	Every time.Duration
	// MaxLife ends every session that is older; 0 is none. It keeps a
	// forgotten session from holding the log's retention.
	MaxLife time.Duration
	// MaxIdle ends every session without an event for so long; 0 is none.
	MaxIdle time.Duration
	// LongestTurn is how long a session that is at work may leave the log
	// without a word: no limit on idleness is shorter.
	LongestTurn time.Duration
}

// DefaultConfig looks twice a minute and ends no session before two days, or
// six hours without a word.
func DefaultConfig() Config {
	return Config{Every: 30 * time.Second, MaxLife: 48 * time.Hour, MaxIdle: 6 * time.Hour}
}

// Validate reports all faults of the configuration at once.
func (c Config) Validate() error {
	var faults []error
	if c.Every <= 0 {
		faults = append(faults, errors.New("recorder: reaper: every is not positive"))
	}
	if c.MaxLife < 0 || c.MaxIdle < 0 {
		faults = append(faults, errors.New("recorder: reaper: a limit is negative"))
	}
	if c.MaxIdle > 0 && c.MaxIdle <= c.LongestTurn {
		faults = append(faults, fmt.Errorf("recorder: reaper: max_idle %s is not longer than the longest turn, %s", c.MaxIdle, c.LongestTurn))
	}
	return errors.Join(faults...)
}

// Allow makes the limits fit turns that may take as long as d.
func (c *Config) Allow(d time.Duration) {
	c.LongestTurn = d
	if c.MaxIdle > 0 {
		c.MaxIdle = max(c.MaxIdle, 2*d)
	}
	if c.MaxLife > 0 {
		c.MaxLife = max(c.MaxLife, 2*c.MaxIdle)
	}
}

// Registry lists the sessions that may be past their limits. What it says is a
// hint: the log is read before a session is closed.
type Registry interface {
	List(ctx context.Context, f registry.Filter) iter.Seq2[registry.Session, error]
}

// Deps are what a reaper works with.
type Deps struct {
	Turns    journal.Journal
	Registry Registry
	// Now is the log server's clock; nil is this process's, which only a log
	// in this process may use.
	Now    func(ctx context.Context) (time.Time, error)
	Logger *slog.Logger
}

// Reaper closes sessions. Any number of them may run.
type Reaper struct {
	cfg  Config
	deps Deps

	closed atomic.Uint64
}

// New returns a reaper that does nothing until Run or Sweep.
func New(cfg Config, deps Deps) (*Reaper, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Turns == nil || deps.Registry == nil {
		return nil, errors.New("recorder: reaper needs turns and a registry")
	}
	if deps.Now == nil {
		deps.Now = func(context.Context) (time.Time, error) { return time.Now(), nil }
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	return &Reaper{cfg: cfg, deps: deps}, nil
}

// Closed counts the sessions that this reaper has closed.
func (r *Reaper) Closed() uint64 { return r.closed.Load() }

// Run sweeps until ctx is done.
func (r *Reaper) Run(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.Every)
	defer tick.Stop()
	for {
		if err := r.Sweep(ctx); err != nil && ctx.Err() == nil {
			r.deps.Logger.Warn("reaper: sweep failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Sweep closes every open session that is past a limit now.
func (r *Reaper) Sweep(ctx context.Context) error {
	now, err := r.deps.Now(ctx)
	if err != nil {
		return fmt.Errorf("recorder: reaper: the server's clock: %w", err)
	}
	// A parked session must end as well: its group waits for it.
	return errors.Join(r.sweep(ctx, now, registry.Open), r.sweep(ctx, now, registry.Parked))
}

func (r *Reaper) sweep(ctx context.Context, now time.Time, state registry.State) error {
	var faults []error
	for s, err := range r.deps.Registry.List(ctx, registry.Filter{State: state}) {
		if err != nil {
			return errors.Join(append(faults, fmt.Errorf("recorder: reaper: %w", err))...)
		}
		reason, _ := r.over(now, s.OpenedAt, s.LastAt, s.WallSeconds, s.IdleSeconds)
		if reason == "" || !s.ClosedAt.IsZero() {
			continue
		}
		if err := r.reap(ctx, now, s.ID); err != nil {
			faults = append(faults, fmt.Errorf("recorder: reaper: session %s: %w", s.ID, err))
		}
	}
	return errors.Join(faults...)
}

// over says which limit is passed, and by how much.
func (r *Reaper) over(now, opened, last time.Time, wall, idle int64) (reason string, by time.Duration) {
	if limit := lower(time.Duration(wall)*time.Second, r.cfg.MaxLife); limit > 0 && now.Sub(opened) > limit {
		return LimitWall, now.Sub(opened) - limit
	}
	if limit := lower(time.Duration(idle)*time.Second, r.cfg.MaxIdle); limit > 0 {
		if by := now.Sub(last) - max(limit, r.cfg.LongestTurn); by > 0 {
			return LimitIdle, by
		}
	}
	return "", 0
}

// lower is the lower of two limits, of which 0 is none.
func lower(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// reap closes one session if the log, too, says that it is past a limit.
func (r *Reaper) reap(ctx context.Context, now time.Time, session string) error {
	t := tree.New(session)
	for {
		for e, err := range r.deps.Turns.ReadSession(ctx, session, t.Tip) {
			if errors.Is(err, event.ErrMalformed) || errors.Is(err, event.ErrMajor) {
				return nil // nobody knows where it ends; it is parked for that
			}
			if err != nil {
				return err
			}
			if err := t.Apply(e); err != nil && !errors.Is(err, tree.ErrIllegal) {
				return err
			}
		}
		if t.Opened == nil || t.Closed != nil {
			return nil
		}
		reason, by := r.over(now, t.OpenedAt, t.LastAt, t.Opened.GetLimits().GetWallSeconds(), t.Opened.GetLimits().GetIdleSeconds())
		if reason == "" {
			return nil
		}
		_, err := r.deps.Turns.Append(ctx, t.Tip, closing(t, now, reason, by))
		switch {
		case errors.Is(err, journal.ErrConflict):
			continue
		case errors.Is(err, journal.ErrIdentity):
			return nil // another reaper closed it
		case err != nil:
			return err
		}
		r.closed.Add(1)
		r.deps.Logger.Info("session closed", "session", session, "reason", reason, "over", by)
		return nil
	}
}

func closing(t *tree.Tree, now time.Time, reason string, by time.Duration) *event.Event {
	return &event.Event{
		Id:       fmt.Sprintf("reaper:%d", t.Tip.Count),
		Tenant:   t.Tenant,
		Run:      t.Run,
		Session:  t.Session,
		TimeUs:   now.UnixMicro(),
		Producer: "reaper",
		Body: &event.Event_SessionClosed{SessionClosed: &event.SessionClosed{
			Reason: reason,
			Detail: fmt.Sprintf("%s past the limit", by.Truncate(time.Second)),
		}},
	}
}
