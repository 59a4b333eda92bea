package deadletter_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/recorder/deadletter"
	"turnlog.dev/schema/journal/mem"
)

func TestALetterIsKeptOnceAndWhole(t *testing.T) {
	box := deadletter.New(mem.New(mem.Options{}))
	l := deadletter.Letter{
		Session: "s1", Event: "e1", Kind: "turn_committed", Stream: "turns", Position: 7,
		Time: time.UnixMicro(1_700_000_000_000_000).UTC(), Reason: "illegal", Detail: "why", Raw: []byte{0, 255},
	}
	require.NoError(t, box.Put(t.Context(), l))
	require.NoError(t, box.Put(t.Context(), l))
	letters, err := box.Read(t.Context(), "s1")
	require.NoError(t, err)
	require.Equal(t, []deadletter.Letter{l}, letters)
}

func TestLettersOfOneSessionMayArriveTogether(t *testing.T) {
	box := deadletter.New(mem.New(mem.Options{}))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			_ = box.Put(t.Context(), deadletter.Letter{Session: "s1", Event: fmt.Sprint(i)})
		})
	}
	wg.Wait()
	letters, err := box.Read(t.Context(), "s1")
	require.NoError(t, err)
	require.Len(t, letters, 20)
}
