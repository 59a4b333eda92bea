package s3_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter/sink"
	"turnlog.dev/exporter/sink/s3"
	"turnlog.dev/exporter/sink/sinktest"
)

func TestSinkKeepsThePromises(t *testing.T) {
	for _, prefix := range []string{"", "some/folder"} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) sink.Sink {
				backend := s3mem.New()
				require.NoError(t, backend.CreateBucket("shards"))
				server := httptest.NewServer(gofakes3.New(backend).Server())
				t.Cleanup(server.Close)
				s, err := s3.New(s3.Config{
					Endpoint: strings.TrimPrefix(server.URL, "http://"), Insecure: true, Bucket: "shards",
					Prefix: prefix, Region: "us-east-1", AccessKey: "id", SecretKey: "secret", PathStyle: true,
				})
				require.NoError(t, err)
				return s
			})
		})
	}
}

func TestConfigFaultsAreReportedTogether(t *testing.T) {
	_, err := s3.New(s3.Config{AccessKey: "id", Prefix: "../up"})
	for _, key := range []string{"endpoint", "bucket", "secret_key", "prefix"} {
		require.ErrorContains(t, err, key)
	}
}
