package jet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// namedPrefix begins the kind of a named log; no name of a tenant or kind has
// its last character.
const namedPrefix = string(Trajectories) + "="

// Named is a trajectory stream besides the recorder's own: what a replay made,
// in streams and subjects of its own.
func Named(name string) Kind { return Kind(namedPrefix + name) }

// known reports whether a kind is one that can be opened.
func (k Kind) known() bool {
	if of, ok := strings.CutPrefix(string(k), namedPrefix); ok {
		return name.MatchString(of)
	}
	return k == Turns || k == Trajectories || k == DeadLetters
}

// NamedInfo is a named trajectory stream as it is listed.
type NamedInfo struct {
	Name          string
	Events, Bytes uint64
}

// ListNamed lists the named trajectory streams of a tenant, by name.
func (c *Conn) ListNamed(ctx context.Context, tenant string) ([]NamedInfo, error) {
	found := map[string]NamedInfo{}
	list := c.js.ListStreams(ctx)
	for s := range list.Info() {
		if of, ok := namedOf(tenant, s.Config.Name); ok {
			n := found[of]
			found[of] = NamedInfo{of, n.Events + s.State.Msgs, n.Bytes + s.State.Bytes}
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("journal: list streams: %w", unavailable(err))
	}
	all := make([]NamedInfo, 0, len(found))
	for _, n := range found {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b NamedInfo) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// RemoveNamed deletes a named trajectory stream of a tenant with all that it
// holds. It fails with ErrNoLog if there is none.
func (c *Conn) RemoveNamed(ctx context.Context, tenant, which string) error {
	removed := false
	list := c.js.StreamNames(ctx)
	var mine []string
	for s := range list.Name() {
		if of, ok := namedOf(tenant, s); ok && of == which {
			mine = append(mine, s)
		}
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("journal: list streams: %w", unavailable(err))
	}
	for _, s := range mine {
		err := c.js.DeleteStream(ctx, s)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("journal: remove stream %s: %w", s, unavailable(err))
		}
		removed = true
	}
	if !removed {
		return fmt.Errorf("%w: no trajectory stream %q", ErrNoLog, which)
	}
	return nil
}

// namedOf returns the name that a stream of the server belongs to.
func namedOf(tenant, stream string) (string, bool) {
	rest, ok := strings.CutPrefix(stream, "tl-"+tenant+"-"+namedPrefix)
	if !ok || len(rest) < len("x-00") || rest[len(rest)-3] != '-' {
		return "", false
	}
	return rest[:len(rest)-3], true
}
