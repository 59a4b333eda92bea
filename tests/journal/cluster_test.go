package journal_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/jet"
	"turnlog.dev/schema/journal/journaltest"
)

// cluster runs three servers that know each other until the test ends.
func cluster(t *testing.T) []*server.Server {
	t.Helper()
	const nodes = 3
	ports := freePorts(t, nodes)
	routes := make([]string, nodes)
	for i, p := range ports {
		routes[i] = fmt.Sprintf("nats://127.0.0.1:%d", p)
	}
	servers := make([]*server.Server, nodes)
	for i := range servers {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprint("node", i),
			Host:       "127.0.0.1", Port: server.RANDOM_PORT,
			Cluster:   server.ClusterOpts{Name: "turnlog", Host: "127.0.0.1", Port: ports[i]},
			Routes:    server.RoutesFromStr(strings.Join(routes, ",")),
			JetStream: true, StoreDir: t.TempDir(), JetStreamMaxStore: 8 << 30,
			SyncAlways: true, NoLog: true, NoSigs: true,
		})
		require.NoError(t, err)
		servers[i] = s
		s.Start()
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
	}
	for _, s := range servers {
		require.True(t, s.ReadyForConnections(patience))
	}
	require.Eventually(t, func() bool { return leader(servers, "") != nil }, patience, tick)
	return servers
}

// leader returns the node that leads the cluster, or a stream; nil while there
// is none.
func leader(servers []*server.Server, stream string) *server.Server {
	for _, s := range servers {
		if s.Running() && (stream == "" && s.JetStreamIsLeader() || stream != "" && s.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream)) {
			return s
		}
	}
	return nil
}

func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func dialCluster(t *testing.T, servers []*server.Server) *jet.Conn {
	t.Helper()
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.ClientURL())
	}
	conn, err := jet.Dial(jet.Options{URL: strings.Join(urls, ",")})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

func clusterConfig(tenant string) jet.Config {
	cfg := config()
	cfg.Tenant, cfg.Replicas, cfg.MaxBytes = tenant, 3, 64<<20
	return cfg
}

// openCluster opens a log, again while the servers have not found each other.
func openCluster(t *testing.T, conn *jet.Conn, cfg jet.Config) *jet.Log {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		log, err := conn.Open(ctx, cfg)
		if errors.Is(err, journal.ErrUnavailable) && ctx.Err() == nil {
			continue
		}
		require.NoError(t, err)
		return log
	}
}

func TestAClusterKeepsThePromises(t *testing.T) {
	conn := dialCluster(t, cluster(t))
	tenant := 0
	journaltest.Run(t,
		func(t *testing.T) journal.Journal {
			tenant++
			cfg := clusterConfig(fmt.Sprint("t", tenant))
			cfg.Batches = true
			log := openCluster(t, conn, cfg)
			require.NoError(t, log.Verify(t.Context(), jet.Cluster, func(context.Context) error { return nil }))
			return log
		},
		journaltest.Features{MaxEvent: config().MaxEvent, CountsLater: true})
}

func TestAClusterThatLosesItsLeaderLosesNothingAcknowledged(t *testing.T) {
	servers := cluster(t)
	log := openCluster(t, dialCluster(t, servers), clusterConfig("default"))
	const sessions, events, at = 4, 60, 20
	var wg, early sync.WaitGroup
	tips := make([]journal.Tip, sessions)
	errs := make([]error, sessions)
	early.Add(sessions)
	for w := range sessions {
		wg.Go(func() {
			for n := range events {
				if n == at {
					early.Done()
				}
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				tips[w], errs[w] = log.Append(ctx, tips[w], annotation(fmt.Sprint("s", w), strconv.Itoa(n), "x"))
				cancel()
				if errs[w] != nil {
					return
				}
			}
		})
	}
	early.Wait()
	leader(servers, "tl-default-s-00").Shutdown()
	wg.Wait()
	for w := range sessions {
		require.NoError(t, errs[w])
		list, err := journaltest.Read(t.Context(), log, fmt.Sprint("s", w), journal.Tip{})
		require.NoError(t, err)
		require.Len(t, list, events)
		require.Equal(t, tips[w], list[events-1].Tip)
		for n, e := range list {
			require.Equal(t, strconv.Itoa(n), e.Event.GetId())
		}
	}
}
