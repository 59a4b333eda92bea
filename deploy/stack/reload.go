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
	"turnlog.dev/gateway/pool"
)

// engines is a model's pool, and what its replicas are made of.
type engines struct {
	model  config.Model
	pool   *pool.Pool
	source source
	open   func(url string) (pool.Replica, error)
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

// Reload takes the backends of a configuration over: what is new is added, what
// is gone gets no more requests and ends what it works on. Backends that came
// over HTTP stay. All else is as it was, and is named in the log if it differs.
// A configuration at fault changes nothing. To be called once Ready is closed,
// one call at a time.
func (s *Stack) Reload(ctx context.Context, cfg config.Config) error {
	if err := Check(cfg); err != nil {
		return err
	}
	type change struct {
		*engines
		source pool.Source
		urls   []string
	}
	var changes []change
	for _, e := range s.engines {
		i := slices.IndexFunc(cfg.Models, func(m config.Model) bool { return m.Name == e.model.Name })
		if i < 0 {
			return fmt.Errorf("model %s is served and not in the file; restart to take it out", e.model.Name)
		}
		m := cfg.Models[i]
		if m.Engine != e.model.Engine || m.Discover != e.model.Discover {
			return fmt.Errorf("model %s: engine and discover cannot change while it is served; restart", m.Name)
		}
		src := listed(m)
		urls, err := src.Backends(ctx)
		if err != nil {
			return fmt.Errorf("model %s: %w", m.Name, err)
		}
		changes = append(changes, change{e, src, urls})
	}
	var faults []error
	for _, c := range changes {
		c.engines.source.now.Store(&c.source)
		faults = append(faults, c.pool.Sync(c.urls, c.open))
		// An engine that is down now may be up later, as at the start.
		if _, err := c.pool.Check(ctx); err != nil {
			s.opt.Log.WarnContext(ctx, "a backend cannot be used now", slog.String("model", c.model.Name), slog.Any("error", err))
		}
	}
	if !reflect.DeepEqual(withoutBackends(cfg), withoutBackends(s.cfg)) {
		s.opt.Log.WarnContext(ctx, "the configuration differs in more than backends; restart for the rest")
	}
	return errors.Join(faults...)
}

// withoutBackends is what a reload does not take over.
func withoutBackends(cfg config.Config) config.Config {
	cfg.Models = slices.Clone(cfg.Models)
	for i := range cfg.Models {
		cfg.Models[i].Backends = nil
	}
	return cfg
}
