package stack

import (
	"context"
	"errors"
	"path"

	"turnlog.dev/deploy/config"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/sink"
	"turnlog.dev/exporter/sink/local"
	"turnlog.dev/exporter/sink/s3"
	"turnlog.dev/recorder"
	"turnlog.dev/recorder/render"
	"turnlog.dev/recorder/worker"
	"turnlog.dev/schema/journal/jet"
)

func (s *Stack) startRecorder(ctx context.Context, g *group, l *logs, m *metrics) error {
	conn, err := l.dial("recorder")
	if err != nil {
		return err
	}
	turns, err1 := l.open(ctx, conn, jet.Turns)
	trajectories, err2 := l.open(ctx, conn, jet.Trajectories)
	dead, err3 := l.open(ctx, conn, jet.DeadLetters)
	sessions, err4 := l.registry(ctx, conn)
	kept, err5 := l.openArchive(ctx, conn)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	cfg, err := recorderConfig(s.cfg)
	if err != nil {
		return err
	}
	files, err := s.recorderModels(ctx, s.cfg.Models)
	if err != nil {
		return err
	}
	s.rendered = render.New(files...)
	rec, err := recorder.New(cfg, recorder.Deps{
		Models: s.rendered,
		Turns:  kept.turns(turns), Trajectories: kept.trajectories(trajectories, jet.Trajectories), DeadLetters: dead, Registry: sessions,
		Now:    turns.Now,
		Logger: s.opt.Log, Fault: func(p worker.Point) { s.opt.Fault("recorder." + string(p)) },
	})
	if err != nil {
		return err
	}
	m.recorder(rec.Stats)
	if err := g.start(ctx, part{name: "recorder", run: rec.Run}); err != nil || kept == nil {
		return err
	}
	arc, err := s.archiver(kept, turns, trajectories, sessions)
	if err != nil {
		return err
	}
	m.archiver(arc.Stats)
	return g.start(ctx, part{name: "archiver", run: arc.Run})
}

func (s *Stack) startExporter(ctx context.Context, g *group, l *logs, m *metrics) error {
	exp, err := s.exporter(ctx, l)
	if err != nil {
		return err
	}
	m.exporter(exp.Stats)
	return g.start(ctx, part{name: "exporter", run: exp.Run})
}

func (s *Stack) exporter(ctx context.Context, l *logs) (*exporter.Exporter, error) {
	conn, err := l.dial("exporter")
	if err != nil {
		return nil, err
	}
	trajectories, err := l.open(ctx, conn, l.trajectories())
	if err != nil {
		return nil, err
	}
	kept, err := l.openArchive(ctx, conn)
	if err != nil {
		return nil, err
	}
	out, err := OpenShards(s.cfg)
	if err != nil {
		return nil, err
	}
	return exporter.New(exporterConfig(s.cfg), exporter.Deps{
		Journal: kept.trajectories(trajectories, l.trajectories()), Sink: out, Log: s.opt.Log,
		Fault: func(step string) { s.opt.Fault("exporter." + step) },
	})
}

// ShardsAt says where shards are, for people.
func ShardsAt(cfg config.Config) string {
	c := cfg.Exporter.S3
	if c.Endpoint == "" {
		return cfg.Shards()
	}
	return "s3://" + path.Join(c.Bucket, c.Prefix) + " at " + c.Endpoint
}

// OpenShards opens the sink that shards are in.
func OpenShards(cfg config.Config) (sink.Sink, error) {
	c := cfg.Exporter.S3
	if c.Endpoint == "" {
		return local.New(cfg.Shards())
	}
	return s3.New(s3.Config{
		Endpoint: c.Endpoint, Bucket: c.Bucket, Prefix: c.Prefix, Region: c.Region, PathStyle: c.PathStyle, Insecure: c.Insecure,
	})
}
