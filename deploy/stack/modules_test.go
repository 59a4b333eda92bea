package stack

import (
	"reflect"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/config"
	"turnlog.dev/exporter"
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
