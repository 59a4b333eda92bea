package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Source lists the engines of a pool by their URLs. It may be asked again and
// again; an error leaves the pool as it is.
type Source interface {
	Backends(ctx context.Context) ([]string, error)
}

// List is a Source that is written down.
type List []string

// Backends implements Source.
func (l List) Backends(context.Context) ([]string, error) { return l, nil }

// Env is a Source of environment variables: the first one that is set, a list
// with commas.
type Env struct {
	Names  []string
	Lookup func(name string) (string, bool) // os.LookupEnv
}

// Backends implements Source.
func (e Env) Backends(context.Context) ([]string, error) {
	for _, name := range e.Names {
		v, ok := e.Lookup(name)
		if !ok {
			continue
		}
		urls := strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' })
		if len(urls) > 0 {
			return urls, nil
		}
	}
	return nil, fmt.Errorf("pool: none of %s is set; set one to the engine's URL", strings.Join(e.Names, ", "))
}

// Resolver is the part of net.Resolver that DNS needs.
type Resolver interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
}

// DNS is a Source of the addresses behind one name, such as a headless service:
// the URL once for every address.
type DNS struct {
	URL      string
	Resolver Resolver // nil is net.DefaultResolver
}

// Backends implements Source.
func (d DNS) Backends(ctx context.Context) ([]string, error) {
	u, err := url.Parse(d.URL)
	if err != nil || u.Hostname() == "" {
		return nil, fmt.Errorf("pool: %q is not of the form http://host:port", d.URL)
	}
	var r Resolver = net.DefaultResolver
	if d.Resolver != nil {
		r = d.Resolver
	}
	addrs, err := r.LookupHost(ctx, u.Hostname())
	if err != nil {
		return nil, fmt.Errorf("pool: look up %s: %w", u.Hostname(), err)
	}
	var urls []string
	for _, a := range addrs {
		one := *u
		if one.Host = a; u.Port() != "" {
			one.Host = net.JoinHostPort(a, u.Port())
		} else if strings.Contains(a, ":") {
			one.Host = "[" + a + "]"
		}
		urls = append(urls, one.String())
	}
	slices.Sort(urls)
	return urls, nil
}

// Sources are several sources as one. What one cannot list is an error of all:
// what it listed before stays.
type Sources []Source

// Backends implements Source.
func (s Sources) Backends(ctx context.Context) (urls []string, err error) {
	for _, one := range s {
		list, err := one.Backends(ctx)
		if err != nil {
			return nil, err
		}
		urls = append(urls, list...)
	}
	return urls, nil
}

// NameOf is the name of the replica at a URL: the URL without its scheme, and
// without a key, which no engine takes there and no log is to show.
func NameOf(rawURL string) string {
	_, name, ok := strings.Cut(rawURL, "://")
	if !ok {
		return rawURL
	}
	host, _, _ := strings.Cut(name, "/")
	return strings.TrimRight(name[strings.LastIndexByte(host, '@')+1:], "/")
}

// Sync makes the pool's replicas those at the given URLs: it adds what is new,
// made by open, and removes what a former Sync added and is gone; what runs there
// ends by itself. Replicas that came by Add stay. The error joins those of open,
// for each of which the replica is left out.
func (p *Pool) Sync(urls []string, open func(url string) (Replica, error)) error {
	var faults []error
	want := map[string]bool{}
	for _, u := range urls {
		name := NameOf(u)
		want[name] = true
		p.mu.Lock()
		known := p.find(name) != nil
		p.mu.Unlock()
		if known {
			continue
		}
		r, err := open(u)
		if err == nil {
			r.Name, r.listed = name, true
			err = p.Add(r)
		}
		if err != nil && !errors.Is(err, ErrDuplicate) {
			faults = append(faults, fmt.Errorf("backend %s: %w", name, err))
		}
	}
	for _, name := range p.unlisted(want) {
		_ = p.Remove(name) // gone already is as good
	}
	return errors.Join(faults...)
}

// unlisted are the replicas that a source listed once and does not now.
func (p *Pool) unlisted(want map[string]bool) (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.replicas {
		if r.listed && !want[r.name] {
			names = append(names, r.name)
		}
	}
	return names
}

// Follow keeps the pool in step with a source until ctx ends, looking again
// after every interval. A source that fails, or lists nothing, changes nothing:
// a name server that is down is no reason to drop engines that work.
func (p *Pool) Follow(ctx context.Context, src Source, every time.Duration, open func(url string) (Replica, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		urls, err := src.Backends(ctx)
		if err == nil && len(urls) > 0 {
			err = p.Sync(urls, open)
		}
		if err != nil && ctx.Err() == nil {
			p.cfg.Logger.WarnContext(ctx, "the engines of a pool cannot be looked up", slog.String("pool", p.cfg.Name), slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
