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
	"turnlog.dev/exporter/sink"
)

// BlobsFolder is where the store of shards has what turns refer to: a value for
// each content, named by its sha256.
const BlobsFolder = "blobs"

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
	name := hex.EncodeToString(sum[:])
	key := path.Join(BlobsFolder, name[:2], name)
	err := b.sink.PutExclusive(ctx, key, bytes.NewReader(content), int64(len(content)))
	if err != nil && !errors.Is(err, sink.ErrExists) {
		return "", err
	}
	return b.root.JoinPath(key).String(), nil
}
