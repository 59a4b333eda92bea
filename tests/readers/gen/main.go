// Command gen writes shards of made-up sessions, and beside them what an
// independent journal of the same sessions says:
//
//	gen DIR    writes DIR/shards and DIR/expected.json
//
// run.sh documents expected.json. Completions come from the made-up sessions,
// not from the rows.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"turnlog.dev/exporter"
	"turnlog.dev/exporter/profile"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/rows/rowstest"
	"turnlog.dev/exporter/sink/local"
	"turnlog.dev/schema/journal"
	"turnlog.dev/schema/journal/mem"
)

type completion struct {
	IDs      []int32  `json:"ids"`
	Logprobs []uint32 `json:"logprobs"`
	Trained  *bool    `json:"trained,omitempty"`
}

type expected struct {
	Sessions map[string][]completion `json:"sessions"`
	Rows     map[string]any          `json:"rows"`
	// Late is what sessions got as reward, advantage and judge's score after
	// their rows were written.
	Late map[string]int `json:"late"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen DIR")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string) error {
	log := mem.New(mem.Options{})
	want := expected{Sessions: make(map[string][]completion), Rows: make(map[string]any), Late: make(map[string]int)}
	sessions := sessions()
	for _, s := range sessions {
		var tip journal.Tip
		for _, ev := range s.Events() {
			var err error
			if tip, err = log.Append(ctx, tip, ev); err != nil {
				return err
			}
		}
		want.Sessions[s.ID] = completions(s)
	}

	shards := filepath.Join(dir, "shards")
	store, err := local.New(shards)
	if err != nil {
		return err
	}
	cfg := exporter.DefaultConfig()
	cfg.FileTokens, cfg.Grades = 60_000, []string{"A", "B", "C", "D"}
	e, err := exporter.New(cfg, exporter.Deps{Journal: log, Sink: store, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := e.Once(ctx); err != nil {
		return err
	}
	for _, s := range sessions {
		res, err := e.Preview(ctx, s.ID)
		if err != nil {
			return err
		}
		for _, r := range res.Rows {
			want.Rows[r.RowID] = columns(r)
		}
	}
	if err := later(ctx, log, sessions, &want); err != nil {
		return err
	}
	if _, err := e.Once(ctx); err != nil {
		return err
	}
	for _, p := range profile.Names {
		if _, err := profile.Materialize(ctx, store, filepath.Join(dir, string(p)), profile.Options{Profile: p}); err != nil {
			return err
		}
	}
	b, err := json.Marshal(want)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "expected.json"), b, 0o644)
}

// later adds rewards and annotations to some sessions whose rows are written.
func later(ctx context.Context, log journal.Journal, sessions []*rowstest.Session, want *expected) error {
	for i, s := range sessions {
		if i%7 != 0 {
			continue
		}
		var tip journal.Tip
		for entry, err := range log.ReadSession(ctx, s.ID, journal.Tip{}) {
			if err != nil {
				return err
			}
			tip = entry.Tip
		}
		rewards := len(s.RewardEvents())
		s.Reward("", float64(i)).Revision = 1
		s.Annotate("advantage", fmt.Sprint(i)).Revision = 1
		s.Annotate("judge", fmt.Sprintf(`{"score":%d}`, i))
		for _, ev := range slices.Concat(s.RewardEvents()[rewards:], s.AnnotationEvents()) {
			var err error
			if tip, err = log.Append(ctx, tip, ev); err != nil {
				return err
			}
		}
		want.Late[s.ID] = i
	}
	return nil
}

// sessions makes groups of four: some with random trees of short turns, some
// with long turns, some whose engine gave no log probabilities.
func sessions() []*rowstest.Session {
	rng := rand.New(rand.NewPCG(20, 26))
	var list []*rowstest.Session
	for g := range 40 {
		for i := range int32(4) {
			id := fmt.Sprintf("g%02d-s%d", g, i)
			s := rowstest.Random(id, rng)
			if g%4 == 3 {
				s = long(id, rng, g)
			}
			s.Group, s.Index, s.GroupSize = fmt.Sprintf("group-%02d", g), i, 4
			s.Metadata = fmt.Sprintf(`{"label":"%d","text":"é 漢字 \"quoted\"","env_class":"demo"}`, g)
			if g%10 == 9 {
				for _, t := range s.Turns() {
					t.TurnSpans.Logprobs, t.TurnSpans.Versions = nil, nil
				}
			}
			// Every session gives a row, so that no group is partial.
			extra := s.Turn("extra", "", 0, []uint32{1, 2}, []uint32{uint32(90_000 + g), 7})
			s.Seal("side", extra.Turn)
			if rng.IntN(3) == 0 {
				s.Reward(extra.Turn, rng.NormFloat64())
			}
			list = append(list, s)
		}
	}
	return list
}

func long(id string, rng *rand.Rand, g int) *rowstest.Session {
	s := rowstest.New(id)
	ids := func(n int) []uint32 {
		list := make([]uint32, n)
		for i := range list {
			list[i] = uint32(rng.ExpFloat64() * 9000)
		}
		return list
	}
	parent, total := "", 0
	var path []string
	for i := range 3 + g%4 {
		name := fmt.Sprintf("t%d", i)
		total = s.Turn(name, parent, total, ids(700), ids(500)).Total()
		parent, path = name, append(path, name)
	}
	s.Seal("main", path...)
	s.Reward("", rng.Float64())
	return s
}

// completions lists what was sampled, in order, and whether it is to be trained.
func completions(s *rowstest.Session) []completion {
	var list []completion
	for _, t := range s.Turns() {
		c := completion{IDs: s.Completion(t.Turn)}
		if len(t.TurnSpans.Logprobs) > 0 {
			for _, lp := range s.Logprobs(t.Turn) {
				c.Logprobs = append(c.Logprobs, math.Float32bits(lp))
			}
		}
		trained := s.OnABranch(t.Turn) && strings.ContainsRune(string(t.Mask), 1)
		if !trained {
			c.Trained = &trained
		}
		list = append(list, c)
	}
	return list
}

// columns maps a row's columns to JSON: float32 as bits, times as microseconds.
func columns(r *rows.Row) map[string]any {
	out := make(map[string]any)
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		name, null, _ := strings.Cut(v.Type().Field(i).Tag.Get("col"), ",")
		out[name] = plain(v.Field(i), null == "null")
	}
	return out
}

func plain(v reflect.Value, null bool) any {
	switch x := v.Interface().(type) {
	case float32:
		return math.Float32bits(x)
	case time.Time:
		if x.IsZero() {
			return nil
		}
		return x.UnixMicro()
	case string:
		if null && x == "" {
			return nil
		}
		return x
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return plain(v.Elem(), false)
	case reflect.Slice:
		if v.IsNil() && null {
			return nil
		}
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plain(v.Index(i), false)
		}
		return list
	default:
		return v.Interface()
	}
}
