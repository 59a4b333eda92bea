package exporter

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/rows"
	"turnlog.dev/schema/journal"
)

// beside writes what stands beside the rows: files of one run and one schema,
// under a folder of their own, since loaders take every file of a folder.
type beside struct {
	rewards     besideWriter[rows.RewardRow]
	annotations besideWriter[rows.AnnotationRow]
	blobs       besideWriter[rows.BlobRow]
}

func newBeside(x *execution) *beside {
	return &beside{
		rewards:     besideWriter[rows.RewardRow]{execution: x, profile: manifest.Rewards, folder: RewardsFolder, schema: rows.RewardsSchema},
		annotations: besideWriter[rows.AnnotationRow]{execution: x, profile: manifest.Annotations, folder: AnnotationsFolder, schema: rows.AnnotationsSchema},
		blobs:       besideWriter[rows.BlobRow]{execution: x, profile: manifest.Blobs, folder: BlobsFolder, schema: rows.BlobsSchema},
	}
}

func (b *beside) add(ctx context.Context, run string, list rows.Beside) error {
	c := &b.rewards.manifest.Counts
	c.LateRewards += int64(len(list.Rewards))
	c.Annotations += int64(len(list.Annotations))
	c.Blobs += int64(len(list.Blobs))
	return errors.Join(
		b.rewards.add(ctx, run, list.Rewards),
		b.annotations.add(ctx, run, list.Annotations),
		b.blobs.add(ctx, run, list.Blobs),
	)
}

// finish publishes what is open.
func (b *beside) finish(ctx context.Context) error {
	return errors.Join(b.rewards.finish(ctx), b.annotations.finish(ctx), b.blobs.finish(ctx))
}

func (b *beside) discard() {
	b.rewards.discard()
	b.annotations.discard()
	b.blobs.discard()
}

// besideRowGroup is the number of rows of a row group: annotations may be as
// long as the row that they are about.
const besideRowGroup = 256

type besideWriter[T any] struct {
	*execution
	profile        manifest.Profile
	folder, schema string
	number         int

	run     string
	staged  *staged[T]
	pending []*T
}

func (w *besideWriter[T]) add(ctx context.Context, run string, list []*T) error {
	if len(list) == 0 {
		return nil
	}
	if w.staged != nil && run != w.run {
		if err := w.finish(ctx); err != nil {
			return err
		}
	}
	if w.staged == nil {
		var err error
		if w.staged, err = stage[T](w.cfg.Temp, w.plan.Config.Compression); err != nil {
			return err
		}
		w.run = run
	}
	w.pending = append(w.pending, list...)
	for len(w.pending) >= besideRowGroup {
		if err := w.staged.writer.Write(w.pending[:besideRowGroup]); err != nil {
			return err
		}
		w.pending = w.pending[besideRowGroup:]
	}
	return nil
}

func (w *besideWriter[T]) finish(ctx context.Context) error {
	if w.staged == nil {
		return nil
	}
	defer w.discard()
	if len(w.pending) > 0 {
		if err := w.staged.writer.Write(w.pending); err != nil {
			return err
		}
	}
	w.number++
	file := manifest.File{Profile: w.profile, Run: w.run, Path: fmt.Sprintf("%s/run=%s/dt=%s/%s-%012d-%03d-%s.parquet",
		w.folder, url.PathEscape(w.run), w.plan.Time.Format(time.DateOnly), w.profile, w.plan.ID, w.number, w.hash[:8])}
	if err := publish(ctx, w.Exporter, w.staged, &file, w.metadata(w.schema, w.profile)); err != nil {
		return err
	}
	w.manifest.Files = append(w.manifest.Files, file)
	return nil
}

func (w *besideWriter[T]) discard() {
	if w.staged != nil {
		w.staged.discard()
	}
	w.staged, w.pending = nil, nil
}

// late writes the rewards and annotations that came after their rows.
func (x *execution) late(ctx context.Context, out *beside) error {
	for _, r := range x.plan.Late {
		list, err := x.lateOf(ctx, r)
		if err != nil {
			return err
		}
		if err := out.add(ctx, r.Run, list); err != nil {
			return err
		}
	}
	return nil
}

// lateOf reads what came late to one session. A session that was trimmed from
// the log, or gives no rows, has nothing.
func (x *execution) lateOf(ctx context.Context, r manifest.Late) (rows.Beside, error) {
	session, err := x.readSession(ctx, r.Session, r.Through)
	var list rows.Beside
	if err == nil {
		list, err = session.Late(policy(x.plan.Config), r.After, r.Through)
	}
	if errors.Is(err, rows.ErrMalformed) || errors.Is(err, journal.ErrGap) {
		x.deps.Log.Warn("late rewards and annotations are not exported", "session", r.Session, "error", err)
		return rows.Beside{}, nil
	}
	return list, err
}
