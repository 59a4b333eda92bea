package mem_test

import (
	"testing"

	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/journaltest"
	"turnlog.dev/schema/journal/mem"
)

func TestJournalKeepsItsPromises(t *testing.T) {
	journaltest.Run(t,
		func(*testing.T) journal.Journal { return mem.New(mem.Options{MaxEvent: 1 << 20}) },
		journaltest.Features{
			MaxEvent: 1 << 20,
			Small:    func(*testing.T) journal.Journal { return mem.New(mem.Options{MaxBytes: 32 << 10}) },
			Poison: func(_ *testing.T, j journal.Journal, session string, raw []byte) {
				j.(*mem.Journal).AppendRaw(session, raw)
			},
		})
}
