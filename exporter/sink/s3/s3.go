// Package s3 keeps a sink in a bucket of any S3-compatible store that honours
// conditional puts (If-None-Match: *). It is the only package that knows
// minio-go.
//
// A value is one put without parts: at most 5 GiB, visible whole or not at all.
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"turnlog.dev/exporter/sink"
)

// MaxSize is the largest value in bytes.
const MaxSize = 5 << 30

// tries of one request; the exporter repeats what fails for longer.
const tries = 2

// Config says where the bucket is.
type Config struct {
	// Endpoint is host or host:port.
	Endpoint string
	// Insecure is for a store that speaks plain HTTP.
	Insecure bool
	Bucket   string
	// Prefix comes before every key; empty is the bucket's root.
	Prefix string
	Region string
	// Without keys, those of the environment or of the machine's role are
	// used: AWS_ACCESS_KEY_ID and so on.
	AccessKey, SecretKey, SessionToken string
	// PathStyle puts the bucket into the path instead of the host name.
	PathStyle bool
	// Transport is http's default when nil.
	Transport http.RoundTripper
}

// Validate reports all faults at once.
func (c Config) Validate() error {
	var faults []error
	if c.Endpoint == "" {
		faults = append(faults, errors.New("sink/s3: endpoint is empty"))
	}
	if c.Bucket == "" {
		faults = append(faults, errors.New("sink/s3: bucket is empty"))
	}
	if (c.AccessKey == "") != (c.SecretKey == "") {
		faults = append(faults, errors.New("sink/s3: access_key and secret_key belong together"))
	}
	if c.Prefix != "" && sink.CheckKey(strings.TrimSuffix(c.Prefix, "/")) != nil {
		faults = append(faults, fmt.Errorf("sink/s3: prefix %q is no path", c.Prefix))
	}
	return errors.Join(faults...)
}

// Sink is a bucket. It implements sink.Sink.
type Sink struct {
	client *minio.Client
	bucket string
	prefix string
}

var _ sink.Sink = (*Sink)(nil)

// New returns a sink. Nothing is sent yet; the bucket must exist.
func New(c Config) (*Sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	keys := credentials.NewStaticV4(c.AccessKey, c.SecretKey, c.SessionToken)
	if c.AccessKey == "" {
		keys = credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		})
	}
	lookup := minio.BucketLookupAuto
	if c.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.New(c.Endpoint, &minio.Options{
		Creds: keys, Secure: !c.Insecure, Region: c.Region, BucketLookup: lookup, Transport: c.Transport,
		MaxRetries: tries,
	})
	if err != nil {
		return nil, fmt.Errorf("sink/s3: %w", err)
	}
	prefix := c.Prefix
	if prefix != "" {
		prefix = strings.TrimSuffix(prefix, "/") + "/"
	}
	return &Sink{client, c.Bucket, prefix}, nil
}

// PutExclusive implements sink.Sink.
func (s *Sink) PutExclusive(ctx context.Context, key string, body io.Reader, size int64) error {
	var o minio.PutObjectOptions
	o.SetMatchETagExcept("*")
	return s.put(ctx, key, body, size, o)
}

// Put implements sink.Sink.
func (s *Sink) Put(ctx context.Context, key string, body io.Reader, size int64) error {
	return s.put(ctx, key, body, size, minio.PutObjectOptions{})
}

func (s *Sink) put(ctx context.Context, key string, body io.Reader, size int64, o minio.PutObjectOptions) error {
	if err := sink.CheckKey(key); err != nil {
		return err
	}
	if size > MaxSize {
		return fmt.Errorf("sink/s3: put %s: %d bytes are above %d", key, size, int64(MaxSize))
	}
	o.DisableMultipart = true
	o.ContentType = "application/octet-stream"
	_, err := s.client.PutObject(ctx, s.bucket, s.prefix+key, body, size, o)
	switch status(err) {
	case http.StatusPreconditionFailed:
		return fmt.Errorf("%w: %s", sink.ErrExists, key)
	case http.StatusConflict:
		// Somebody else was at it. Only a value that is there has won.
		if _, gone := s.client.StatObject(ctx, s.bucket, s.prefix+key, minio.StatObjectOptions{}); gone == nil {
			return fmt.Errorf("%w: %s", sink.ErrExists, key)
		}
	}
	if err != nil {
		return fmt.Errorf("sink/s3: put %s: %w", key, err)
	}
	return nil
}

// status is the HTTP status of an answer that was an error, or 0.
func status(err error) int {
	var response minio.ErrorResponse
	if !errors.As(err, &response) {
		return 0
	}
	return response.StatusCode
}

// Open implements sink.Sink.
func (s *Sink) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := sink.CheckKey(key); err != nil {
		return nil, err
	}
	// The request is sent by the first use.
	object, err := s.client.GetObject(ctx, s.bucket, s.prefix+key, minio.GetObjectOptions{})
	if err == nil {
		if _, err = object.Stat(); err == nil {
			return object, nil
		}
		err = errors.Join(err, object.Close())
	}
	if status(err) == http.StatusNotFound {
		return nil, fmt.Errorf("%w: %s", sink.ErrNotFound, key)
	}
	return nil, fmt.Errorf("sink/s3: open %s: %w", key, err)
}

// List implements sink.Sink.
func (s *Sink) List(ctx context.Context, prefix string) iter.Seq2[sink.Info, error] {
	return func(yield func(sink.Info, error) bool) {
		options := minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}
		for o := range s.client.ListObjectsIter(ctx, s.bucket, options) {
			if o.Err != nil {
				yield(sink.Info{}, fmt.Errorf("sink/s3: list %s: %w", prefix, o.Err))
				return
			}
			info := sink.Info{Key: strings.TrimPrefix(o.Key, s.prefix), Size: o.Size, Modified: o.LastModified}
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Delete implements sink.Sink.
func (s *Sink) Delete(ctx context.Context, key string) error {
	if err := sink.CheckKey(key); err != nil {
		return err
	}
	err := s.client.RemoveObject(ctx, s.bucket, s.prefix+key, minio.RemoveObjectOptions{})
	if err != nil && status(err) != http.StatusNotFound {
		return fmt.Errorf("sink/s3: delete %s: %w", key, err)
	}
	return nil
}
