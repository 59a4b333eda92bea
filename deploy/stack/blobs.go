package stack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"path"
	"path/filepath"

	"turnlog.dev/deploy/config"
	"turnlog.dev/exporter"
	"turnlog.dev/exporter/sink"
	"turnlog.dev/recorder/replay"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/journal"
)

// blobs implements gateway.Blobs in the store of the shards, where whoever reads
// the rows can reach them.
type blobs struct {
	sink sink.Sink
	root url.URL
}

func openBlobs(cfg config.Config) (*blobs, error) {
	out, err := OpenShards(cfg)
	if err != nil {
		return nil, err
	}
	if c := cfg.Exporter.S3; c.Endpoint != "" {
		return &blobs{out, url.URL{Scheme: "s3", Host: c.Bucket, Path: path.Join("/", c.Prefix)}}, nil
	}
	root, err := filepath.Abs(cfg.Shards())
	return &blobs{out, url.URL{Scheme: "file", Path: filepath.ToSlash(root)}}, err
}

// Put implements gateway.Blobs.
func (b *blobs) Put(ctx context.Context, sum [sha256.Size]byte, content []byte) (string, error) {
	key := exporter.ContentKey(hex.EncodeToString(sum[:]))
	err := b.sink.PutExclusive(ctx, key, bytes.NewReader(content), int64(len(content)))
	if errors.Is(err, sink.ErrExists) {
		// Written again it is young: a sweep judges no young one.
		err = b.sink.Put(ctx, key, bytes.NewReader(content), int64(len(content)))
	}
	if err != nil {
		return "", err
	}
	return b.root.JoinPath(key).String(), nil
}

// NamedBlobs adds the sums, in hex, of all blobs that events of the logs name, those
// that were archived included.
func NamedBlobs(ctx context.Context, l Logs, sums map[string]bool) error {
	if l.Partial {
		return errors.New("sessions of this log are in an archive, and may name blobs: set recorder.archive.after and recorder.archive.dir as the recorder has them")
	}
	for id, err := range replay.Logged(ctx, l.Turns, replay.Range{}) {
		if err != nil {
			return err
		}
		for _, j := range []journal.Journal{l.Turns, l.Trajectories} {
			for e, err := range j.ReadSession(ctx, id, journal.Tip{}) {
				if err != nil {
					return err
				}
				event.EachBlob(e.Event, func(b *event.Blob) { sums[hex.EncodeToString(b.GetSha256())] = true })
			}
		}
	}
	return nil
}
