package pool

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type names map[string][]string

func (n names) LookupHost(_ context.Context, host string) ([]string, error) {
	if a, ok := n[host]; ok {
		return a, nil
	}
	return nil, errors.New("no such host")
}

func TestEnginesAreFoundByListEnvironmentAndName(t *testing.T) {
	env := map[string]string{"B": "http://b:1, http://c:2"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	dns := names{"svc": {"10.0.0.2", "10.0.0.1", "fd00::1"}}
	for name, c := range map[string]struct {
		src  Source
		want []string
	}{
		"list":         {List{"http://a:1"}, []string{"http://a:1"}},
		"environment":  {Env{[]string{"A", "B"}, lookup}, []string{"http://b:1", "http://c:2"}},
		"name":         {DNS{"http://svc:30000/base", dns}, []string{"http://10.0.0.1:30000/base", "http://10.0.0.2:30000/base", "http://[fd00::1]:30000/base"}},
		"without port": {DNS{"http://svc", dns}, []string{"http://10.0.0.1", "http://10.0.0.2", "http://[fd00::1]"}},
	} {
		got, err := c.src.Backends(t.Context())
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	both, err := Sources{List{"http://a:1"}, DNS{"http://svc", dns}}.Backends(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"http://a:1", "http://10.0.0.1", "http://10.0.0.2", "http://[fd00::1]"}, both)
	for want, src := range map[string]Source{
		"look up gone": Sources{List{"http://a:1"}, DNS{"http://gone", dns}},
		"none of X":    Env{[]string{"X"}, lookup}, "look up other": DNS{"http://other:1", dns}, "of the form": DNS{"other", dns},
	} {
		_, err := src.Backends(t.Context())
		require.ErrorContains(t, err, want)
	}
}

// changing is a source whose answer is set by the test.
type changing struct{ atomic.Pointer[listing] }

type listing struct {
	urls []string
	err  error
}

func (c *changing) Backends(context.Context) ([]string, error) {
	l := c.Load()
	return l.urls, l.err
}

func TestAPoolFollowsItsSourceAndOutlivesTheSourcesFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(Config{})
		require.NoError(t, err)
		open := func(url string) (Replica, error) {
			if url == "http://bad" {
				return Replica{}, errors.New("no such kind")
			}
			return Replica{Engine: &fake{}}, nil
		}
		now := func() (list []string) {
			for _, r := range p.Stats().Replicas {
				list = append(list, r.Name)
			}
			return list
		}
		src := &changing{}
		src.Store(&listing{urls: []string{"http://a", "http://bad", "http://b/"}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Follow(ctx, src, time.Minute, open) }()
		synctest.Wait()
		require.Equal(t, []string{"a", "b"}, now())

		src.Store(&listing{urls: []string{"http://b", "http://c"}})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"b", "c"}, now())

		for _, broken := range []*listing{{err: errors.New("no answer")}, {}} {
			src.Store(broken)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, []string{"b", "c"}, now())
		}
		cancel()
		require.NoError(t, <-done)
	})
}

// TestASyncSaysWhatItCouldNotOpenAndLeavesAloneWhatAnOperatorAdded: the others are
// there all the same.
func TestASyncSaysWhatItCouldNotOpenAndLeavesAloneWhatAnOperatorAdded(t *testing.T) {
	p, err := New(Config{}, Replica{Name: "mine:1", Engine: &fake{}})
	require.NoError(t, err)
	opened := 0
	open := func(url string) (Replica, error) {
		if url == "http://bad" {
			return Replica{}, errors.New("no such kind")
		}
		opened++
		return Replica{Engine: &fake{}}, nil
	}
	err = p.Sync([]string{"http://bad", "http://a", "http://mine:1"}, open)
	require.ErrorContains(t, err, "backend bad: no such kind")
	require.NoError(t, p.Sync([]string{"http://b", "http://a"}, open))
	require.Equal(t, 2, opened, "what is there is not opened again")
	var names []string
	for _, r := range p.Stats().Replicas {
		names = append(names, r.Name)
	}
	require.ElementsMatch(t, []string{"mine:1", "a", "b"}, names)
}

func TestAReplicaIsNamedByWhereItIs(t *testing.T) {
	for url, name := range map[string]string{
		"http://h:1": "h:1", "https://h:1/": "h:1", "http://h/a@b/": "h/a@b", "http://secret@h:1": "h:1", "http://u:s@cret@h/a": "h/a", "h:1": "h:1",
	} {
		require.Equal(t, name, NameOf(url))
	}
}
