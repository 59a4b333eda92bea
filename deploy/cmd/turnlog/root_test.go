package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/config"
	"turnlog.dev/tokenizer/hub"
)

func TestHelpShowsWhatACommandIsTold(t *testing.T) {
	help := func(args ...string) string {
		out, err := turnlog(t, append(args, "--help")...)
		require.NoError(t, err)
		return out
	}
	verify := help("verify")
	require.Contains(t, verify, "--no-shards")
	require.Contains(t, verify, "--log.url string")
	require.NotContains(t, verify, "--exporter.flush")
	require.Contains(t, verify, "turnlog up --help")
	up := help("up")
	require.Regexp(t, `--exporter.flush duration +.* \(default 10s\)`, up)
	require.Regexp(t, `--exporter.keep-tail +keep`, up)
	require.Contains(t, up, "--log.url string")
	require.Equal(t, up, help("up")) // nothing stays hidden
	require.Contains(t, help("exporter"), "--exporter.flush")
}

func TestWordsThatNoCommandTakesAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"up", "extra"},
		{"verify", "extra"},
		{"version", "extra"},
		{"sessions", "extra"},
		{"shards", "extra"},
		{"engine", "extra"},
		{"engine", "mock", "extra"},
		{"shards", "list", "extra"},
		{"shards", "show", "row", "extra"},
		{"extra"},
	} {
		_, err := turnlog(t, args...)
		require.Error(t, err, args)
	}
	_, err := turnlog(t, "shards", "list", "extra")
	require.EqualError(t, err, `"extra": turnlog shards list takes flags only; --help lists them`)
}

func TestWhoLooksForRowsTooEarlyIsToldWhenTheyCome(t *testing.T) {
	data := t.TempDir()
	for _, command := range []string{"list", "rows"} {
		out, err := turnlog(t, "shards", command, "--data", data)
		require.NoError(t, err)
		require.Contains(t, out, whenRowsCome)
	}
	out, err := turnlog(t, "shards", "list", "--json", "--data", data)
	require.NoError(t, err)
	require.Empty(t, out)
}

func TestALogServerThatDoesNotAnswerIsNamedWithoutItsPassword(t *testing.T) {
	_, err := turnlog(t, "verify", "--log.url", "nats://u:secret@127.0.0.1:1")
	require.ErrorContains(t, err, "log.url: nats://u:xxxxx@127.0.0.1:1: ")
	require.ErrorContains(t, err, "is a NATS server running there")
}

func TestWhereNoTerminalIsADownloadIsALine(t *testing.T) {
	var said bytes.Buffer
	cmd := root()
	cmd.SetErr(&said)
	show := downloads(cmd, logger(config.Default(), &said))
	show(hub.Progress{File: "tokenizer.json", Done: 10, Total: 20})
	require.Empty(t, said.String())
	show(hub.Progress{File: "tokenizer.json", Done: 20, Total: 20})
	require.Contains(t, said.String(), `"msg":"downloaded","file":"tokenizer.json","bytes":20`)
	require.Equal(t, 1, strings.Count(said.String(), "\n"))
}
