// Rows checks the shards of sessions against the journal of the engine that
// served them: every turn of a row is what the engine sampled, for exactly the
// tokens that stand before it in the row.
//
//	rows SHARDS JOURNAL SESSION...
//
// It waits for rows of every session, up to a minute.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"turnlog.dev/exporter"
	"turnlog.dev/exporter/parquet"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink/local"
	"turnlog.dev/gateway/engine/mock"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: rows SHARDS JOURNAL SESSION")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	shards, err := local.New(args[0])
	if err != nil {
		return err
	}
	for {
		c := checker{missing: map[string]bool{}}
		for _, s := range args[2:] {
			c.missing[s] = true
		}
		if err := c.journal(args[1]); err != nil {
			return err
		}
		if err := c.shards(ctx, shards); err != nil {
			return err
		}
		if len(c.missing) == 0 {
			fmt.Printf("%d rows, %d turns, %d trained tokens\n", c.rows, c.turns, c.trained)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no row of %v", c.missing)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

type checker struct {
	missing              map[string]bool
	sampled              map[string][]mock.Sampled // by completion
	rows, turns, trained int
}

func (c *checker) journal(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	c.sampled = map[string][]mock.Sampled{}
	for line := range bytes.Lines(raw) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		s, err := mock.ParseSampled(line)
		if err != nil {
			return err
		}
		key := fmt.Sprint(s.Completion)
		c.sampled[key] = append(c.sampled[key], s)
	}
	return nil
}

func (c *checker) shards(ctx context.Context, shards *local.Sink) error {
	state, err := exporter.Manifests(shards).Load(ctx)
	if err != nil {
		return err
	}
	for _, f := range state.Files {
		if err := c.file(ctx, shards.Path(f.Path)); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) file(ctx context.Context, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for batch, err := range parquet.Read[rows.Row](ctx, f) {
		if err != nil {
			return err
		}
		for _, r := range batch {
			if err := c.row(r); err != nil {
				return fmt.Errorf("session %s, row %s: %w", r.SessionID, r.RowID, err)
			}
		}
	}
	return nil
}

func (c *checker) row(r *rows.Row) error {
	delete(c.missing, r.SessionID)
	c.rows++
	ids := make([]uint32, len(r.InputIDs))
	for i, id := range r.InputIDs {
		ids[i] = uint32(id)
		c.trained += int(r.LossMask[i])
	}
	masked := slices.Clone(r.LossMask)
	for i, start := range r.TurnStart {
		end := r.TurnEnd[i]
		found := slices.ContainsFunc(c.sampled[fmt.Sprint(ids[start:end])], func(s mock.Sampled) bool {
			return slices.Equal(s.Prompt, ids[:start]) && slices.EqualFunc(s.Logprobs, r.Logprobs[start:end], sameBits)
		})
		if !found {
			return fmt.Errorf("turn %d, tokens %d to %d: the engine did not sample this for what stands before it", i, start, end)
		}
		clear(masked[start:end])
		c.turns++
	}
	if slices.Contains(masked, 1) {
		return errors.New("a token is trained that belongs to no turn")
	}
	return nil
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
