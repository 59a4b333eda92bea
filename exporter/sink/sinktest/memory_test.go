package sinktest_test

import (
	"testing"

	"turnlog.dev/exporter/sink"
	"turnlog.dev/exporter/sink/sinktest"
)

func TestMemoryKeepsThePromises(t *testing.T) {
	sinktest.Run(t, func(*testing.T) sink.Sink { return sinktest.NewMemory() })
}
