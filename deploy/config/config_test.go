package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/config"
)

// load reads a file's text, variables and flags.
func load(t *testing.T, file string, env, args []string) (config.Config, error) {
	t.Helper()
	src := config.Source{Env: env, Flags: pflag.NewFlagSet("turnlog", pflag.ContinueOnError)}
	config.AddFlags(src.Flags)
	require.NoError(t, src.Flags.Parse(args))
	if file != "" {
		src.File = filepath.Join(t.TempDir(), "turnlog.yaml")
		require.NoError(t, os.WriteFile(src.File, []byte(file), 0o600))
	}
	return config.Load(src)
}

func TestAFlagWinsOverAVariableAndAVariableOverTheFile(t *testing.T) {
	file := "tenant: file\nexporter: {flush: 1s, flush_tokens: 1, grades: [A]}\n"
	env := []string{"TURNLOG_EXPORTER_FLUSH_TOKENS=2", "TURNLOG_EXPORTER_FLUSH=2s", "OTHER=x", "TURNLOG_CONFIG=not a key"}
	cfg, err := load(t, file, env, []string{"--exporter.flush", "3s"})
	require.NoError(t, err)
	require.Equal(t, "file", cfg.Tenant)
	require.Equal(t, int64(2), cfg.Exporter.FlushTokens)
	require.Equal(t, 3*time.Second, cfg.Exporter.Flush)
	require.Equal(t, []string{"A"}, cfg.Exporter.Grades)
	require.Equal(t, config.Default().Gateway, cfg.Gateway)
}

func TestEveryKindOfKeyIsAFlag(t *testing.T) {
	cfg, err := load(t, "", nil, []string{
		"--exporter.keep-tail", "--exporter.s3.insecure=false", "--exporter.min-reward", "0.5", "--exporter.min-version=7",
		"--exporter.grades", "A,B", "--exporter.classes", "[main]", "--recorder.policy.audit=0.25", "--gateway.max-body", "1024",
		"--models", "[{name: q, files: demo, engine: mock}]",
	})
	require.NoError(t, err)
	require.True(t, cfg.Exporter.KeepTail)
	require.InDelta(t, 0.5, *cfg.Exporter.MinReward, 0)
	require.Equal(t, int64(7), *cfg.Exporter.MinVersion)
	require.Equal(t, []string{"A", "B"}, cfg.Exporter.Grades)
	require.Equal(t, []string{"main"}, cfg.Exporter.Classes)
	require.InDelta(t, 0.25, cfg.Recorder.Policy.Audit, 0)
	require.Equal(t, int64(1024), cfg.Gateway.MaxBody)
	require.Equal(t, []config.Model{{Name: "q", Files: "demo", Engine: "mock"}}, cfg.Models)
	require.NoError(t, cfg.Validate())
}

func TestAMistakeIsNamedByItsKeyAndInPlainWords(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		env  string
		flag string
		says string
	}{
		"unknown key":      {file: "models:\n  - name: q\n    file: x\n", says: "line 3: no such key: file"},
		"unknown variable": {env: "TURNLOG_GATEWAY_CACHE=1", says: "TURNLOG_GATEWAY_CACHE: no such key; turnlog up --print-config shows them all"},
		"duration in file": {file: "exporter:\n  flush: 10\n", says: `line 2: "10" is not a duration, such as 30s or 5m`},
		"duration":         {flag: "--exporter.flush=10", says: `--exporter.flush: "10" is not a duration, such as 30s or 5m`},
		"number":           {env: "TURNLOG_GATEWAY_CACHE_BYTES=1GB", says: `TURNLOG_GATEWAY_CACHE_BYTES: "1GB" is not a whole number`},
		"fraction":         {flag: "--exporter.min-reward=high", says: `--exporter.min-reward: "high" is not a number`},
		"bool":             {flag: "--exporter.keep-tail=maybe", says: `--exporter.keep-tail: "maybe" is not true or false`},
		"list":             {flag: "--models=foo", says: `--models: line 1: "foo" is not a list`},
		"group":            {file: "gateway: [a]\n", says: "line 1: this is not a group of keys"},
		"two documents":    {file: "tenant: a\n---\ntenant: b\n", says: "more than one document"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.file, strings.Fields(c.env), strings.Fields(c.flag))
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "yaml: unmarshal")
			require.NotContains(t, err.Error(), "config.")
		})
	}
}

func TestAllMistakesAreToldAtOnceInOneOrder(t *testing.T) {
	_, err := load(t, "", nil, []string{"--exporter.flush=1", "--gateway.max-body=x", "--log.streams=y"})
	require.EqualError(t, err, `config: --log.streams: "y" is not a whole number
config: --gateway.max-body: "x" is not a whole number
config: --exporter.flush: "1" is not a duration, such as 30s or 5m`)

	cfg := config.Default()
	cfg.Data, cfg.Listen, cfg.Log.Listen, cfg.Log.Streams, cfg.Exporter.S3.Endpoint = "", ":99999", "4222", 3, "http://store:9000"
	require.EqualError(t, cfg.Validate(), `config: data: a folder is needed
config: listen: ":99999" is not HOST:PORT
config: log.listen: "4222" is not HOST:PORT
config: log.streams: must be a power of two up to 64
config: exporter.s3.bucket: is missing
config: exporter.s3.endpoint: "http://store:9000" is not HOST or HOST:PORT; exporter.s3.insecure says plain HTTP`)
}

func TestALogThatOthersReachHasASecret(t *testing.T) {
	for address, ok := range map[string]bool{
		"": true, "127.0.0.1:4222": true, "[::1]:4222": true, "localhost:4222": true,
		":4222": false, "0.0.0.0:4222": false, "[::]:4222": false, "10.0.0.7:4222": false, "node7:4222": false,
	} {
		cfg := config.Default()
		cfg.Log.Listen = address
		if ok {
			require.NoError(t, cfg.Validate(), address)
			continue
		}
		require.ErrorContains(t, cfg.Validate(), "config: log.listen: "+address+" can be reached from other machines")
		cfg.Log.TokenFile = "log.token"
		require.NoError(t, cfg.Validate(), address)
	}
	cfg := config.Default()
	cfg.Log.TLS.Cert = "cert.pem"
	require.EqualError(t, cfg.Validate(), "config: log.tls: cert and key belong together")
}

func TestWhatIsPrintedIsAFileThatSaysTheSame(t *testing.T) {
	cfg, err := load(t, "", nil, []string{"--exporter.max-reward=1", "--exporter.flush=3s", "--log.monitor=http://a:8222,http://b:8222"})
	require.NoError(t, err)
	text, err := cfg.YAML()
	require.NoError(t, err)
	cfg, err = load(t, string(text), nil, nil)
	require.NoError(t, err)
	require.InDelta(t, 1, *cfg.Exporter.MaxReward, 0)
	require.Equal(t, []string{"http://a:8222", "http://b:8222"}, cfg.Log.Monitor)
	again, err := cfg.YAML()
	require.NoError(t, err)
	require.Equal(t, string(text), string(again))
}

func TestAPasswordIsNotShown(t *testing.T) {
	for url, shown := range map[string]string{
		"":                                "",
		"nats://a:4222":                   "nats://a:4222",
		"nats://u:secret@a:4222":          "nats://u:xxxxx@a:4222",
		"nats://secret@a:4222":            "nats://xxxxx@a:4222",
		"nats://u:secret@a,nats://b":      "nats://u:xxxxx@a,nats://b",
		"nats://a, nats://u:secret@b:1":   "nats://a,nats://u:xxxxx@b:1",
		"u:secret@a:4222":                 "xxxxx@a:4222",
		"nats://u:sec%ret@a:4222":         "xxxxx@a:4222",
		"tls://u:secret@a,tls://v:se@b:1": "tls://u:xxxxx@a,tls://v:xxxxx@b:1",
	} {
		cfg := config.Default()
		cfg.Log.URL = url
		require.Equal(t, shown, cfg.Log.Servers())
		text, err := cfg.YAML()
		require.NoError(t, err)
		require.NotContains(t, string(text), "secret")
		require.Equal(t, url, cfg.Log.URL)
	}
	// It is refused there, but the configuration may be printed first.
	cfg := config.Default()
	cfg.Models[0].Backends = []string{"http://h:1", "http://u:secret@h:1", "http://secret@h:1"}
	text, err := cfg.YAML()
	require.NoError(t, err)
	require.NotContains(t, string(text), "secret")
	require.Contains(t, string(text), "http://xxxxx@h:1")
	require.Equal(t, "http://u:secret@h:1", cfg.Models[0].Backends[1], "what is used stays as it is")
}
