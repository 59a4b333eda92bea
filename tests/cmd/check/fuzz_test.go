package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEveryFuzzTestRunsAndAFailingInputIsShown(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod":            "module example.com/m\n\ngo 1.26\n",
		"m/good/g_test.go":  "package good\n\nimport \"testing\"\n\nfunc FuzzGood(f *testing.F) { f.Fuzz(func(*testing.T, string) {}) }\n",
		"m/bad/b_test.go":   "package bad\n\nimport \"testing\"\n\nfunc FuzzBad(f *testing.F) {\n\tf.Add(1)\n\tf.Fuzz(func(t *testing.T, n int) {\n\t\tif n != 1 {\n\t\t\tt.Fatal(\"it is another\")\n\t\t}\n\t})\n}\n",
		"m/wrong/w_test.go": "package wrong\n\nfunc FuzzWrong(f *testing.F) {}\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	var out bytes.Buffer
	z := fuzzing{roots: []string{"m"}, time: time.Second}
	require.Equal(t, tally{passed: 1, failed: 2}, z.run(t.Context(), &out))
	for _, shown := range []string{
		"ok    fuzz m/good FuzzGood", "FAIL  build of the fuzz tests in m/wrong",
		"FAIL  fuzz m/bad FuzzBad", "it is another", "go test fuzz v1\nint(", "go test -run='^FuzzBad/",
	} {
		require.Contains(t, out.String(), shown)
	}
}

func TestOnlyTheEndOfItsTimeExcusesAFuzzTest(t *testing.T) {
	const over = "fuzz: elapsed: 5s, execs: 40 (0/sec)\n--- FAIL: FuzzX (5.01s)\n    context deadline exceeded\nFAIL\n"
	require.True(t, ranOut([]byte(over)))
	require.False(t, ranOut([]byte("--- FAIL: FuzzX (5.01s)\n    --- FAIL: FuzzX (0.00s)\n        x.go:1: context deadline exceeded\n")))
	require.False(t, ranOut([]byte(over+"    Failing input written to testdata/fuzz/FuzzX/1\n")))
	require.False(t, ranOut([]byte("panic: it broke\n")))
}
