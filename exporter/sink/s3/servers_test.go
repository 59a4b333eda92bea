//go:build servers

package s3_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter/sink"
	"turnlog.dev/exporter/sink/s3"
	"turnlog.dev/exporter/sink/sinktest"
)

// Servers that are programs of their own: the variable names the binary, and
// args how it is started on an address with a folder.
var servers = []struct {
	name, binary string
	args         func(address, folder string) []string
}{
	{"versitygw", "TURNLOG_TEST_VERSITYGW", func(address, folder string) []string {
		return []string{"--port", address, "posix", folder}
	}},
	{"minio", "TURNLOG_TEST_MINIO", func(address, folder string) []string {
		return []string{"server", "--quiet", "--address", address, folder}
	}},
}

const access, secret = "turnlog-test", "turnlog-test-secret"

func TestServersKeepThePromises(t *testing.T) {
	tested := 0
	for _, server := range servers {
		binary := os.Getenv(server.binary)
		if binary == "" {
			continue // the script says which there are
		}
		tested++
		t.Run(server.name, func(t *testing.T) {
			address := free(t)
			cmd := exec.CommandContext(t.Context(), binary, server.args(address, t.TempDir())...)
			cmd.Env = append(os.Environ(),
				"ROOT_ACCESS_KEY="+access, "ROOT_SECRET_KEY="+secret, "MINIO_ROOT_USER="+access, "MINIO_ROOT_PASSWORD="+secret)
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			client, err := minio.New(address, &minio.Options{Creds: credentials.NewStaticV4(access, secret, ""), Region: "us-east-1"})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				_, err := client.ListBuckets(t.Context())
				return err == nil
			}, time.Minute, 100*time.Millisecond)

			n := 0
			sinktest.Run(t, func(t *testing.T) sink.Sink {
				n++
				bucket := "shards-" + strconv.Itoa(n)
				require.NoError(t, client.MakeBucket(t.Context(), bucket, minio.MakeBucketOptions{}))
				s, err := s3.New(s3.Config{
					Endpoint: address, Insecure: true, Bucket: bucket, Prefix: fmt.Sprintf("p%d", n),
					Region: "us-east-1", AccessKey: access, SecretKey: secret, PathStyle: true,
				})
				require.NoError(t, err)
				return s
			})
		})
	}
	require.NotZero(t, tested, "no variable names a server: run tests/sinks/run.sh")
}

// free is an address that nobody listens on.
func free(t *testing.T) string {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
