package journal_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/deploy/natsd"
	"turnlog.dev/deploy/natsd/natsdtest"
	"turnlog.dev/schema/journal"
)

// The start does not read the log, so it cannot see what was altered in place.
// Whoever reads that place is told, and gets nothing from it.
func TestWhatWasAlteredInPlaceIsFoundWhenItIsRead(t *testing.T) {
	dir := t.TempDir()
	marker := strings.Repeat("altered", 20)
	run := func(work func(s *natsd.Server)) {
		s, stop := natsdtest.Start(t, natsd.Config{Dir: dir})
		work(s)
		stop()
	}
	run(func(s *natsd.Server) {
		log := open(t, s, config())
		var tip journal.Tip
		for n := range 20 {
			value := "x"
			if n == 9 {
				value = marker
			}
			var err error
			tip, err = log.Append(t.Context(), tip, annotation("s", strconv.Itoa(n), value))
			require.NoError(t, err)
		}
	})
	changed := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".blk" {
			return err
		}
		raw, err := os.ReadFile(path)
		if at := bytes.Index(raw, []byte(marker)); err == nil && at >= 0 {
			raw[at+30] ^= 1
			changed++
			return os.WriteFile(path, raw, 0o600)
		}
		return err
	}))
	require.Equal(t, 1, changed)
	run(func(s *natsd.Server) {
		log := open(t, s, config())
		require.NoError(t, log.Intact(t.Context()), "the start looks at what is missing, not at what is there")
		ctx, cancel := context.WithTimeout(t.Context(), patience/10)
		defer cancel()
		var ids []string
		var failed error
		for e, err := range log.ReadSession(ctx, "s", journal.Tip{}) {
			if failed = err; err == nil {
				ids = append(ids, e.Event.GetId())
			}
		}
		require.Error(t, failed)
		require.LessOrEqual(t, len(ids), 9, "nothing of it, and nothing after it, is given out")
	})
}
