package stack

import (
	"reflect"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/config"
	"turnlog.dev/exporter"
	"turnlog.dev/recorder/archive"
	"turnlog.dev/recorder/fold"
)

// What the exporter's own documentation says holds for the program.
func TestTheDefaultsOfTheConfigurationAreTheExporters(t *testing.T) {
	want := exporter.DefaultConfig()
	got := exporterConfig(config.Default())
	require.Empty(t, got.Classes)
	got.Classes = want.Classes
	require.Equal(t, want, got)
}

// Every setting of the exporter is a key, a variable and a flag.
func TestEverythingTheExporterKnowsCanBeSaid(t *testing.T) {
	said := map[string]string{
		"tenant": "other", "exporter.flush": "1s", "exporter.flush-tokens": "5", "exporter.reward-deadline": "2s",
		"exporter.group-deadline": "3s", "exporter.partial": "export", "exporter.grades": "A,D", "exporter.classes": "main",
		"exporter.min-tokens": "2", "exporter.max-tokens": "9", "exporter.min-reward": "-0.5", "exporter.max-reward": "1",
		"exporter.min-version": "7", "exporter.keep-tail": "true", "exporter.file-tokens": "99", "exporter.compression": "none",
		"exporter.compact-every": "5s", "exporter.compact-files": "3", "exporter.collect-after": "6s", "exporter.temp": "/var/tmp",
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(flags)
	for name, value := range said {
		require.NoError(t, flags.Set(name, value), name)
	}
	cfg, err := config.Load(config.Source{Flags: flags})
	require.NoError(t, err)
	require.NoError(t, Check(cfg))
	got, plain := reflect.ValueOf(exporterConfig(cfg)), reflect.ValueOf(exporter.DefaultConfig())
	for i := range got.NumField() {
		name := got.Type().Field(i).Name
		require.NotEqual(t, plain.Field(i).Interface(), got.Field(i).Interface(), "exporter.Config.%s cannot be said", name)
	}
	require.InDelta(t, -0.5, *exporterConfig(cfg).MinReward, 0)
}

func TestTheDefaultsOfTheConfigurationAreTheRecorders(t *testing.T) {
	got, err := recorderConfig(config.Default())
	require.NoError(t, err)
	require.Equal(t, fold.DefaultPolicy(), got.Worker.Policy)
}

func TestTheArchiveIsOffUntilItIsSaidWhen(t *testing.T) {
	cfg := config.Default()
	require.Zero(t, cfg.Recorder.Archive.After)
	require.NoError(t, Check(cfg))
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(flags)
	for name, value := range map[string]string{"after": "36h", "every": "7m", "dir": "elsewhere", "keep-trajectories": "true"} {
		require.NoError(t, flags.Set("recorder.archive."+name, value), name)
	}
	cfg, err := config.Load(config.Source{Flags: flags})
	require.NoError(t, err)
	require.NoError(t, Check(cfg))
	want := archive.DefaultConfig()
	want.After, want.Every, want.KeepTrajectories = 36*time.Hour, 7*time.Minute, true
	require.Equal(t, want, archiveConfig(cfg))
	require.Equal(t, "elsewhere", cfg.Recorder.Archive.Dir)
	cfg.Recorder.Archive.After = 30*time.Minute + 30*time.Second
	require.ErrorContains(t, Check(cfg), "not longer than a turn may take, which is 30m30s")
	cfg.Gateway.AppendTimeout--
	require.NoError(t, Check(cfg))
	cfg.Recorder.Archive.After = time.Second
	require.ErrorContains(t, Check(cfg), "less than 10s")
	cfg.Recorder.Archive.After, cfg.Recorder.Archive.Every = time.Hour, 0
	require.ErrorContains(t, Check(cfg), "every is not positive")
	require.Equal(t, config.Default().Recorder.Archive, Folder(cfg, "other").Recorder.Archive, "another folder has no archive")
}

// Every part of the recorder's policy is a key, a variable and a flag.
func TestEverythingTheRecordersPolicyKnowsCanBeSaid(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(flags)
	for name, value := range map[string]string{
		"train": "main,side", "abandoned": "train", "undelivered": "train", "cut-off": "mask", "rewritten-calls": "mask",
		"reasoning": "mask", "mask-flags": "malformed_call", "grades": "greedy=B,constrained:=A", "audit": "0.25",
	} {
		require.NoError(t, flags.Set("recorder.policy."+name, value), name)
	}
	cfg, err := config.Load(config.Source{Flags: flags})
	require.NoError(t, err)
	require.NoError(t, Check(cfg))
	policy, err := Policy(cfg)
	require.NoError(t, err)
	got, plain := reflect.ValueOf(policy), reflect.ValueOf(fold.DefaultPolicy())
	for i := range got.NumField() {
		require.NotEqual(t, plain.Field(i).Interface(), got.Field(i).Interface(), "fold.Policy.%s cannot be said", got.Type().Field(i).Name)
	}
	require.Equal(t, fold.Train, policy.Classes[fold.ClassSide])
	require.Equal(t, fold.Mask, policy.Classes[fold.ClassSubagent])
	require.Equal(t, map[string]fold.Letter{"greedy": "B", "constrained:": "A"}, policy.Grades)

	cfg.Recorder.Policy.Grades = []string{"greedy"}
	require.ErrorContains(t, Check(cfg), "REASON=GRADE")
	cfg.Recorder.Policy.Grades, cfg.Recorder.Policy.CutOff = []string{"text_in=A"}, "perhaps"
	require.ErrorContains(t, Check(cfg), "text_in")
	require.ErrorContains(t, Check(cfg), "cut_off")
}
