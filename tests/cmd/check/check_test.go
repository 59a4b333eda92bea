package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryOutcomeIsCounted(t *testing.T) {
	events := strings.Join([]string{
		`{"Action":"run","Package":"a","Test":"TestOne"}`,
		`{"Action":"pass","Package":"a","Test":"TestOne/sub"}`,
		`{"Action":"pass","Package":"a","Test":"TestOne"}`,
		`{"Action":"output","Package":"a","Test":"TestTwo","Output":"    a_test.go:1: not here\n"}`,
		`{"Action":"skip","Package":"a","Test":"TestTwo"}`,
		`{"Action":"output","Package":"a","Test":"TestThree","Output":"it broke\n"}`,
		`{"Action":"fail","Package":"a","Test":"TestThree"}`,
		`{"Action":"fail","Package":"a"}`,
		`{"ImportPath":"b [b.test]","Action":"build-output","Output":"b.go:1: undefined\n"}`,
		`{"ImportPath":"b [b.test]","Action":"build-fail"}`,
		`{"Action":"fail","Package":"b"}`,
		`{"Action":"pass","Package":"c"}`,
	}, "\n")
	var out bytes.Buffer
	require.Equal(t, tally{passed: 2, failed: 2, skipped: 1}, count(&out, strings.NewReader(events)))
	for _, shown := range []string{"it broke", "not here", "b.go:1: undefined"} {
		require.Contains(t, out.String(), shown)
	}
	require.NotContains(t, out.String(), "c (", "a package without tests")
}

func TestAScriptsLastCountCounts(t *testing.T) {
	got, ok := lastCount([]byte("1 passed, 1 failed, 0 skipped\nmore\n12 passed, 0 failed, 3 skipped\n"))
	require.True(t, ok)
	require.Equal(t, tally{passed: 12, skipped: 3}, got)
	_, ok = lastCount([]byte("all 12 passed"))
	require.False(t, ok)
}
