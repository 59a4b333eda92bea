package journal_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
)

func TestAModeIsRefusedOnAServerThatCannotKeepIt(t *testing.T) {
	dev := natsdtest.Serve(t, natsd.Config{})
	single := natsdtest.Serve(t, natsd.Config{Mode: natsd.Single})
	monitor := func(always string) jet.SyncProof {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(`{"config":{"max_storage":1,"sync_always":` + always + `}}`))
		}))
		t.Cleanup(s.Close)
		return jet.Monitor(s.Client(), s.URL)
	}
	for name, c := range map[string]struct {
		server *natsd.Server
		mode   jet.Mode
		proof  jet.SyncProof
		ok     bool
	}{
		"dev needs no proof":              {dev, jet.Dev, nil, true},
		"single without proof":            {single, jet.Single, nil, false},
		"single that does not sync":       {dev, jet.Single, dev.Synced, false},
		"single that does":                {single, jet.Single, single.Synced, true},
		"single by monitoring":            {single, jet.Single, monitor("true"), true},
		"single by monitoring, not":       {single, jet.Single, monitor("false"), false},
		"single without monitoring":       {single, jet.Single, jet.Monitor(http.DefaultClient), false},
		"cluster of one":                  {single, jet.Cluster, single.Synced, false},
		"a mode that nobody has heard of": {single, "fast", single.Synced, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := open(t, c.server, config()).Verify(t.Context(), c.mode, c.proof)
			if c.ok {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, jet.ErrDurability)
			}
		})
	}
}

func TestTheServersOwnMonitoringIsProofEnough(t *testing.T) {
	for mode, ok := range map[natsd.Mode]bool{natsd.Single: true, natsd.Dev: false} {
		s := natsdtest.Serve(t, natsd.Config{Mode: mode, Listen: "127.0.0.1:0", Monitor: "127.0.0.1:0"})
		err := open(t, s, config()).Verify(t.Context(), jet.Single, jet.Monitor(http.DefaultClient, s.MonitorURL()))
		require.Equal(t, ok, err == nil, err)
	}
}

func TestALogIsOpenedAsItWasMadeOrNotAtAll(t *testing.T) {
	s := natsdtest.Serve(t, natsd.Config{})
	log := open(t, s, config())
	id := log.Stream(0)
	require.Equal(t, id, open(t, s, config()).Stream(0), "the same log")

	for name, change := range map[string]func(*jet.Config){
		"streams":  func(c *jet.Config) { c.Streams = 4 },
		"replicas": func(c *jet.Config) { c.Replicas = 3 },
	} {
		cfg := config()
		change(&cfg)
		_, err := natsdtest.Dial(t, s).Open(t.Context(), cfg)
		require.Error(t, err, name)
	}

	cfg := config()
	cfg.MaxBytes /= 2
	require.Equal(t, id, open(t, s, cfg).Stream(0), "room may change")
}

// An older program would misread what this one writes, and one that is newer is
// as strange to this one.
func TestALogIsRefusedByProgramsThatDoNotKnowItsFormat(t *testing.T) {
	s := natsdtest.Serve(t, natsd.Config{})
	id := open(t, s, config()).Stream(0)
	js, err := jetstream.New(raw(t, s))
	require.NoError(t, err)
	format := func() string {
		stream, err := js.Stream(t.Context(), "tl-default-s-00")
		require.NoError(t, err)
		return stream.CachedInfo().Config.Metadata["tl.schema"]
	}
	made := func(by string) {
		stream, err := js.Stream(t.Context(), "tl-default-s-00")
		require.NoError(t, err)
		cfg := stream.CachedInfo().Config
		cfg.Metadata["tl.schema"] = by
		_, err = js.UpdateStream(t.Context(), cfg)
		require.NoError(t, err)
	}
	require.Equal(t, "2", format())

	reading, keeping := config(), config()
	reading.Existing, keeping.Existing = jet.ReadOnly, jet.KeepLimits
	made("1")
	require.Equal(t, id, open(t, s, reading).Stream(0))
	require.Equal(t, "1", format(), "who reads changes nothing")
	for _, cfg := range []jet.Config{config(), keeping} {
		made("1")
		require.Equal(t, id, open(t, s, cfg).Stream(0), "the same log")
		require.Equal(t, "2", format(), "programs that know only 1 are kept out from here on")
	}
	made("3")
	for _, cfg := range []jet.Config{config(), keeping, reading} {
		_, err := natsdtest.Dial(t, s).Open(t.Context(), cfg)
		require.ErrorContains(t, err, `its format is "3", this program knows up to 2`)
	}
	require.Equal(t, "3", format())
}

func TestAConfigurationTellsAllItsFaults(t *testing.T) {
	err := jet.Config{Tenant: "a.b", Kind: "x", Streams: 3}.Validate()
	for _, fault := range []string{"tenant", "kind", "streams", "replicas", "max bytes", "max event", "max consumers", "in flight", "takeover"} {
		require.ErrorContains(t, err, fault)
	}
	require.NoError(t, jet.DefaultConfig("default", jet.Turns).Validate())
}

func TestHealthTellsAFullLog(t *testing.T) {
	cfg := config()
	cfg.MaxBytes = 8 << 20
	log := open(t, natsdtest.Serve(t, natsd.Config{}), cfg)
	require.NoError(t, log.Health(t.Context()))
	var tip journal.Tip
	for n := 0; ; n++ {
		next, err := log.Append(t.Context(), tip, annotation("s", strconv.Itoa(n), noise(200<<10)))
		if errors.Is(err, journal.ErrFull) {
			break
		}
		require.NoError(t, err)
		tip = next
	}
	require.Eventually(t, func() bool {
		return errors.Is(log.Health(context.Background()), journal.ErrFull)
	}, patience, tick)
}
