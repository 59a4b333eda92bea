package exporter

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/exporter/sink"
)

// mergeFiles is the most files that one plan merges: one row group of each is in
// memory.
const mergeFiles = 128

// Compact merges small shards of a run into large ones, until no run has two
// shards that are less than half full. Rows stay as they are; readers of older
// manifests keep their files for CollectAfter. Run does it by itself where there
// are many.
func (e *Exporter) Compact(ctx context.Context) (Summary, error) {
	return e.rewriteAll(ctx, manifest.Replace, func(files []manifest.File) []string {
		return small(files, e.cfg.FileTokens, 2)
	})
}

// Drop removes all files of a run from the data set.
func (e *Exporter) Drop(ctx context.Context, run string) (Summary, error) {
	return e.rewriteAll(ctx, manifest.Drop, func(files []manifest.File) (paths []string) {
		for _, f := range files {
			if f.Run == run {
				paths = append(paths, f.Path)
			}
		}
		return paths
	})
}

// worthMerging returns the shards that Run merges.
func (e *Exporter) worthMerging(files []manifest.File) []string {
	return small(files, e.cfg.FileTokens, e.cfg.CompactFiles)
}

// small returns shards of one run that are less than half full, if the run has
// at least so many: the smallest first, and no more than fill one file, which
// bounds how long a merge takes.
func small(files []manifest.File, full int64, least int) (paths []string) {
	of := make(map[string][]manifest.File)
	for _, f := range files {
		if f.Profile == manifest.Traj && f.Tokens < full/2 {
			of[f.Run] = append(of[f.Run], f)
		}
	}
	for _, run := range slices.Sorted(maps.Keys(of)) {
		list := of[run]
		if len(list) < least {
			continue
		}
		slices.SortStableFunc(list, func(a, b manifest.File) int { return cmp.Compare(a.Tokens, b.Tokens) })
		var tokens int64
		for _, f := range list[:min(len(list), mergeFiles)] {
			if tokens += f.Tokens; tokens > full {
				break
			}
			paths = append(paths, f.Path)
		}
		return paths
	}
	return nil
}

// rewriteAll plans and executes an operation on the files that choose picks,
// until it picks none.
func (e *Exporter) rewriteAll(ctx context.Context, op manifest.Op, choose func([]manifest.File) []string) (Summary, error) {
	state, err := e.log.Load(ctx)
	if err != nil {
		return Summary{}, err
	}
	f := e.newFollower(state)
	for again := true; again; {
		if again, err = f.rewrite(ctx, op, choose); err != nil {
			return Summary{}, err
		}
	}
	f.summary.Last = f.state.ID
	return f.summary, nil
}

// rewrite plans and executes an operation on the files that choose picks, or a
// plan that somebody else published first; it reports whether it did.
func (f *follower) rewrite(ctx context.Context, op manifest.Op, choose func([]manifest.File) []string) (done bool, err error) {
	if found, err := f.resume(ctx); err != nil || found {
		return found, err
	}
	paths := choose(f.state.Files)
	if len(paths) == 0 {
		return false, nil
	}
	plan := &manifest.Plan{
		Format: manifest.PlanFormat, ID: f.state.ID + 1, Op: op, Config: f.cfg.planned(), Replaces: paths,
		Time: f.deps.Now().UTC().Truncate(time.Millisecond),
	}
	if err := f.publishPlan(ctx, plan); err != nil {
		return false, err
	}
	return f.resume(ctx)
}

// replace writes the rows of the plan's files again, merged by group.
func (x *execution) replace(ctx context.Context, files []manifest.File) error {
	var sources []manifest.File
	for _, path := range x.plan.Replaces {
		i := slices.IndexFunc(files, func(f manifest.File) bool { return f.Path == path })
		if i < 0 {
			return fmt.Errorf("%w: plan %d replaces %q, which is not there", manifest.ErrMalformed, x.plan.ID, path)
		}
		sources = append(sources, files[i])
	}
	part := partWriter{execution: x}
	defer part.discard()
	for group, err := range merge(ctx, x.deps.Sink, sources) {
		if err != nil {
			return err
		}
		for _, r := range group {
			x.note(r)
		}
		if err := part.add(ctx, group[0].RunID, group); err != nil {
			return err
		}
	}
	return part.finish(ctx)
}

// merge yields the groups of files, each of which is ordered by group_id, in the
// order of run and group_id.
func merge(ctx context.Context, s sink.Sink, files []manifest.File) iter.Seq2[[]*rows.Row, error] {
	return func(yield func([]*rows.Row, error) bool) {
		type source struct {
			head []*rows.Row
			next func() ([]*rows.Row, error, bool)
		}
		var open []*source
		for _, f := range files {
			next, stop := iter.Pull2(groups(ctx, s, f))
			defer stop()
			head, err, ok := next()
			if err != nil {
				yield(nil, err)
				return
			}
			if ok {
				open = append(open, &source{head, next})
			}
		}
		for len(open) > 0 {
			least := slices.MinFunc(open, func(a, b *source) int {
				return cmp.Or(cmp.Compare(a.head[0].RunID, b.head[0].RunID), cmp.Compare(a.head[0].GroupID, b.head[0].GroupID))
			})
			if !yield(least.head, nil) {
				return
			}
			head, err, ok := least.next()
			if err != nil {
				yield(nil, err)
				return
			}
			if least.head = head; !ok {
				open = slices.DeleteFunc(open, func(o *source) bool { return o == least })
			}
		}
	}
}

// groups yields the groups of a shard, in its order.
func groups(ctx context.Context, s sink.Sink, f manifest.File) iter.Seq2[[]*rows.Row, error] {
	return func(yield func([]*rows.Row, error) bool) {
		for rowGroup, err := range RowGroups(ctx, s, f) {
			if err != nil {
				yield(nil, err)
				return
			}
			for len(rowGroup) > 0 {
				n := slices.IndexFunc(rowGroup, func(r *rows.Row) bool { return r.GroupID != rowGroup[0].GroupID })
				if n < 0 {
					n = len(rowGroup)
				}
				if !yield(rowGroup[:n:n], nil) {
					return
				}
				rowGroup = rowGroup[n:]
			}
		}
	}
}
