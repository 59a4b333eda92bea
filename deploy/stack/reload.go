package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync/atomic"

	"turnlog.dev/deploy/config"
	"turnlog.dev/gateway"
	"turnlog.dev/gateway/pool"
)

// served are the models that the gateway of this process serves now.
type served struct {
	models  *gateway.Models
	list    []*engines
	group   *group
	metrics *metrics
	// leaving are models that no request gets any more. Each is over when what it
	// works on is.
	leaving []leaving
}

type leaving struct {
	cancel context.CancelFunc
	done   <-chan error
}

// serveModels starts the models of the configuration. They end behind the
// gateway, which is started after them.
func (s *Stack) serveModels(ctx context.Context, g *group, m *metrics) error {
	s.served = &served{models: gateway.NewModels(), group: g, metrics: m}
	started, err := s.startAll(ctx, s.cfg.Models)
	if err != nil {
		return err
	}
	s.served.take(ctx, started)
	return g.start(ctx, part{name: "models", run: func(ctx context.Context) error {
		<-ctx.Done()
		return s.served.stop()
	}})
}

// startAll starts models, all of them or none.
func (s *Stack) startAll(ctx context.Context, models []config.Model) (started []*engines, err error) {
	for _, c := range models {
		e, err := s.start(ctx, s.served.group, c)
		if err != nil {
			for _, e := range started {
				err = errors.Join(err, e.parts.stop())
			}
			return nil, err
		}
		started = append(started, e)
	}
	return started, nil
}

// take has these models served from now on, and no others.
func (v *served) take(ctx context.Context, list []*engines) {
	for _, e := range v.list {
		if !slices.Contains(list, e) {
			e.uncounted()
		}
	}
	models := make([]*gateway.Model, len(list))
	for i, e := range list {
		models[i] = e.model
		if e.uncounted == nil {
			e.uncounted = v.metrics.pool(e.config.Name, e.pool.Stats)
		}
	}
	v.models.Set(models...)
	for _, e := range v.list {
		if !slices.Contains(list, e) {
			v.leaving = append(v.leaving, e.leave(ctx))
		}
	}
	v.list = list
}

// leave ends what runs for a model once nothing is under way there.
func (e *engines) leave(ctx context.Context) leaving {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() {
		for _, r := range e.pool.Stats().Replicas {
			_ = e.pool.Drain(ctx, r.Name) // or ctx has ended
		}
		done <- e.parts.stop()
	}()
	return leaving{cancel, done}
}

func (v *served) stop() (err error) {
	for _, l := range v.leaving {
		l.cancel()
		err = errors.Join(err, <-l.done)
	}
	for _, e := range v.list {
		err = errors.Join(err, e.parts.stop())
	}
	return err
}

// source is a pool.Source that can be replaced while it is followed.
type source struct{ now *atomic.Pointer[pool.Source] }

func newSource(src pool.Source) source {
	s := source{new(atomic.Pointer[pool.Source])}
	s.now.Store(&src)
	return s
}

// Backends implements pool.Source.
func (s source) Backends(ctx context.Context) ([]string, error) { return (*s.now.Load()).Backends(ctx) }

// Reload takes the models of a configuration over. One that is new is checked and
// started as at the start of the program; one that is gone gets no more requests
// and ends what it works on; one that differs in anything but its backends, the
// contents of its api_key_file included, does both. Backends that are new are added, those that are gone end what they work on,
// those that came over HTTP stay. A name that cannot be looked up leaves a model that
// was there before as it is. All else is as it was, and is named in the log if
// it differs. A configuration at fault, or a model that cannot be served, changes
// nothing. To be called once Ready is closed, one call at a time.
func (s *Stack) Reload(ctx context.Context, cfg config.Config) error {
	if err := Check(cfg); err != nil {
		return err
	}
	fresh := slices.DeleteFunc(slices.Clone(cfg.Models), func(c config.Model) bool {
		return slices.ContainsFunc(s.cfg.Models, func(old config.Model) bool { return same(old, c) }) && !s.served.rekeyed(c)
	})
	files, err := s.recorderModels(ctx, fresh)
	if err != nil {
		return err
	}
	var commit func() error
	if s.served != nil {
		if commit, err = s.prepare(ctx, cfg.Models, fresh); err != nil {
			return err
		}
	}
	// The recorder first: it is to know a model before there are turns of it. It
	// keeps what it knows, since turns of a model that is gone may wait in the log.
	if s.rendered != nil {
		s.rendered.Add(files...)
	}
	if commit != nil {
		err = commit()
	}
	before := s.cfg
	s.cfg.Models = cfg.Models
	before.Models, cfg.Models = nil, nil
	if !reflect.DeepEqual(before, cfg) {
		s.opt.Log.WarnContext(ctx, "the configuration differs in more than models; restart for the rest")
	}
	return err
}

// prepare starts what is new and finds the backends of what stays; only commit
// changes what is served.
func (s *Stack) prepare(ctx context.Context, models, fresh []config.Model) (commit func() error, err error) {
	type change struct {
		*engines
		config config.Model
		source pool.Source
		urls   []string
	}
	var kept []change
	for _, c := range models {
		i := slices.IndexFunc(s.served.list, func(e *engines) bool { return same(e.config, c) })
		if i < 0 || c.Engine == "mock" || slices.ContainsFunc(fresh, func(f config.Model) bool { return f.Name == c.Name }) {
			continue
		}
		src := listed(c)
		urls, err := src.Backends(ctx)
		switch {
		case err != nil && c.Discover != "dns":
			return nil, fmt.Errorf("model %s: %w", c.Name, err)
		case err != nil:
			// What works goes on; the names are looked up again and again.
			s.opt.Log.WarnContext(ctx, "the names of a model's backends cannot be looked up; it keeps those that it has",
				slog.String("model", c.Name), slog.Any("error", err))
		}
		kept = append(kept, change{s.served.list[i], c, src, urls})
	}
	started, err := s.startAll(ctx, fresh)
	if err != nil {
		return nil, err
	}
	return func() error {
		var list []*engines
		for _, c := range models {
			all := slices.Concat(started, s.served.list)
			list = append(list, all[slices.IndexFunc(all, func(e *engines) bool { return same(e.config, c) })])
		}
		s.served.take(ctx, list)
		var faults []error
		for _, c := range kept {
			c.engines.config = c.config
			c.engines.source.now.Store(&c.source)
			if len(c.urls) > 0 {
				faults = append(faults, c.pool.Sync(c.urls, c.open))
			}
			// An engine that is down now may be up later, as at the start.
			if _, err := c.pool.Check(ctx); err != nil {
				s.opt.Log.WarnContext(ctx, "a backend cannot be used now", slog.String("model", c.config.Name), slog.Any("error", err))
			}
		}
		return errors.Join(faults...)
	}, nil
}

// rekeyed reports whether a model that is served has another key than its file holds
// now. A file that cannot be read is for who opens the model to complain of.
func (v *served) rekeyed(c config.Model) bool {
	if v == nil {
		return false
	}
	return slices.ContainsFunc(v.list, func(e *engines) bool {
		key, err := apiKey(c)
		return e.config.Name == c.Name && (err != nil || key != e.key)
	})
}

// same reports whether two models differ in their backends at most.
func same(a, b config.Model) bool {
	a.Backends, b.Backends = nil, nil
	return reflect.DeepEqual(a, b)
}
