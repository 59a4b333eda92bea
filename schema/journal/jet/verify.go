package jet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrDurability says that the server does not keep what the mode promises.
var ErrDurability = errors.New("journal: the server is less durable than the mode promises")

// Mode is what an acknowledgement means.
type Mode string

// The modes.
const (
	Dev     Mode = "dev"     // survives the death of the process
	Single  Mode = "single"  // on disk
	Cluster Mode = "cluster" // on a majority of three disks or more
)

// The oldest server that can rewind a consumer and batches its syncs.
const minMajor, minMinor = 2, 15

// SyncProof returns nil if every server syncs to disk before it acknowledges.
type SyncProof func(ctx context.Context) error

// Verify refuses a log that cannot keep what the mode promises: call it before
// the first append. What a client cannot see, how the server syncs, takes a
// proof in all modes but dev: natsd's own word for an embedded server, Monitor
// for others.
func (l *Log) Verify(ctx context.Context, mode Mode, proof SyncProof) error {
	var errs []error
	fault := func(format string, v ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrDurability}, v...)...))
	}
	if v := l.conn.nc.ConnectedServerVersion(); !recent(v) {
		fault("server version %q, not %d.%d or newer", v, minMajor, minMinor)
	}
	for _, s := range l.streams {
		info, err := s.handle.Info(ctx)
		if err != nil {
			return fmt.Errorf("journal: verify stream %s: %w", s.name, unavailable(err))
		}
		c := info.Config
		if c.MaxBytes <= 0 || c.Discard != jetstream.DiscardNew {
			fault("stream %s has no limit that it refuses at", s.name)
		}
		if c.MaxAge > 0 || c.MaxMsgs > 0 || c.MaxMsgsPerSubject > 0 {
			fault("stream %s forgets by age or number", s.name)
		}
		if mode == Cluster && (c.Replicas < 3 || info.Cluster == nil) {
			fault("stream %s has %d replicas, not 3", s.name, c.Replicas)
		}
	}
	switch mode {
	case Dev:
	case Single, Cluster:
		if proof == nil {
			fault("mode %s, and nothing shows that the server syncs always: name its monitoring address", mode)
		} else if err := proof(ctx); err != nil {
			fault("mode %s: %w", mode, err)
		}
	default:
		fault("mode %q is unknown", mode)
	}
	return errors.Join(errs...)
}

func recent(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (major > minMajor || major == minMajor && minor >= minMinor)
}

// Monitor proves by the servers' own monitoring: every address, like
// http://node1:8222, must show sync_always.
func Monitor(client *http.Client, addresses ...string) SyncProof {
	return func(ctx context.Context) error {
		if len(addresses) == 0 {
			return errors.New("no monitoring address")
		}
		for _, a := range addresses {
			if err := syncsAlways(ctx, client, a); err != nil {
				return fmt.Errorf("monitoring of %s: %w", a, err)
			}
		}
		return nil
	}
}

func syncsAlways(ctx context.Context, client *http.Client, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+"/jsz?config=true", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	var info struct {
		Config struct {
			SyncAlways bool `json:"sync_always"`
		} `json:"config"`
	}
	if err := json.NewDecoder(response.Body).Decode(&info); err != nil {
		return err
	}
	if !info.Config.SyncAlways {
		return errors.New("sync_interval is not always")
	}
	return nil
}
