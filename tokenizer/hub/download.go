package hub

import (
	"context"
	"crypto/sha1" //nolint:gosec // git names contents by SHA-1
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Progress is the state of one file's download, in bytes.
type Progress struct {
	File        string
	Done, Total int64
}

// maxFile bounds a file. The largest tokenizer.json have 35 MB.
const maxFile = 256 << 20

// download fetches a model's files into the cache. Files are verified before
// they get their name, and the ref is written last, so that whatever stops a
// download leaves nothing that looks complete.
func (h Hub) download(ctx context.Context, root, repo, revision string) (folder, commit string, err error) {
	commit, names, err := h.list(ctx, repo, revision)
	if err != nil {
		return "", "", err
	}
	folder = filepath.Join(root, "snapshots", commit)
	for _, name := range names {
		if err := h.fetch(ctx, root, folder, repo, commit, name); err != nil {
			return "", "", fmt.Errorf("%s: %w", name, err)
		}
	}
	if !usable(folder) {
		return "", "", fmt.Errorf("%w: it has no tokenizer.json, tekken.json or tiktoken.model", ErrNotFound)
	}
	if revision != commit {
		err := writeAtomic(filepath.Join(root, "refs", filepath.FromSlash(revision)), func(w io.Writer) error {
			_, err := io.WriteString(w, commit)
			return err
		})
		if err != nil {
			return "", "", err
		}
	}
	return folder, commit, nil
}

// list asks the hub which commit a revision is and which files it has.
func (h Hub) list(ctx context.Context, repo, revision string) (commit string, names []string, err error) {
	resp, err := h.do(ctx, http.MethodGet, "/api/models/"+repo+"/revision/"+url.PathEscape(revision), true)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	var info struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
		} `json:"siblings"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxFile)).Decode(&info); err != nil {
		return "", nil, fmt.Errorf("the hub's answer: %w", err)
	}
	if !commitHash.MatchString(info.SHA) {
		return "", nil, fmt.Errorf("the hub's answer names no commit: is %s a hub?", h.endpoint())
	}
	for _, s := range info.Siblings {
		if wanted(s.Name) && filepath.IsLocal(filepath.FromSlash(s.Name)) {
			names = append(names, s.Name)
		}
	}
	return info.SHA, names, nil
}

// fetch downloads one file unless it is there.
func (h Hub) fetch(ctx context.Context, root, folder, repo, commit, name string) error {
	target := filepath.Join(folder, filepath.FromSlash(name))
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	path := "/" + repo + "/resolve/" + commit + "/" + name
	// The first answer, before any redirect to a store, carries the hash.
	head, err := h.do(ctx, http.MethodHead, path, false)
	if err != nil {
		return err
	}
	head.Body.Close()
	etag := head.Header.Get("X-Linked-Etag")
	if etag == "" {
		etag = head.Header.Get("ETag")
	}
	etag = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
	size := head.ContentLength
	if n, err := strconv.ParseInt(head.Header.Get("X-Linked-Size"), 10, 64); err == nil {
		size = n
	}
	if size > maxFile {
		return fmt.Errorf("%d bytes are too many for a tokenizer's file", size)
	}
	sum, err := newSum(etag, size)
	if err != nil {
		return err
	}
	blob := filepath.Join(root, "blobs", etag)
	if _, err := os.Stat(blob); err != nil {
		if err := h.fetchBlob(ctx, blob, path, name, size, etag, sum); err != nil {
			return err
		}
	}
	return link(blob, target)
}

func (h Hub) fetchBlob(ctx context.Context, blob, path, name string, size int64, etag string, sum hash.Hash) error {
	resp, err := h.do(ctx, http.MethodGet, path, true)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return writeAtomic(blob, func(w io.Writer) error {
		body := &counted{r: resp.Body, state: Progress{File: name, Total: size}, report: h.Progress}
		n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(body, maxFile+1))
		if err != nil {
			return err
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != etag {
			return fmt.Errorf("%w: %d bytes have the hash %s, the hub says %s: try again, or see what stands between", ErrChecksum, n, got, etag)
		}
		return nil
	})
}

// newSum makes the hash that an etag is of: sha256 for large files, git's blob
// hash, which includes the size, for others.
func newSum(etag string, size int64) (hash.Hash, error) {
	if _, err := hex.DecodeString(etag); err == nil {
		switch len(etag) {
		case sha256.Size * 2:
			return sha256.New(), nil
		case sha1.Size * 2:
			h := sha1.New() //nolint:gosec // see the import
			fmt.Fprintf(h, "blob %d\x00", size)
			return h, nil
		}
	}
	return nil, fmt.Errorf("%w: the hub gives no hash (ETag %q)", ErrChecksum, etag)
}

// counted reports how much of a body was read.
type counted struct {
	r      io.Reader
	state  Progress
	report func(Progress)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.state.Done += int64(n)
	if c.report != nil && n > 0 {
		c.report(c.state)
	}
	return n, err
}

func (h Hub) endpoint() string {
	if h.Endpoint == "" {
		return publicEndpoint
	}
	return strings.TrimRight(h.Endpoint, "/")
}

// client returns the client to use. Redirects to another host lose the token,
// which net/http sees to.
func (h Hub) client(follow bool) *http.Client {
	c := http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: time.Minute, TLSHandshakeTimeout: 15 * time.Second,
	}}
	if h.Client != nil {
		c = *h.Client
	}
	if !follow {
		// A renamed model redirects on the hub itself; a large file redirects to
		// its store, and that answer carries the hash.
		c.CheckRedirect = func(req *http.Request, via []*http.Request) error {
			if req.URL.Host != via[0].URL.Host || req.Response.Header.Get("X-Linked-Etag") != "" || len(via) > 5 {
				return http.ErrUseLastResponse
			}
			return nil
		}
	}
	return &c
}

// attempts is how often a request is made before the hub counts as away.
const attempts = 4

// do makes a request and returns its answer if that is a success, or the
// redirect to a store where these are not followed. It repeats what may work
// next time.
func (h Hub) do(ctx context.Context, method, path string, follow bool) (*http.Response, error) {
	client := h.client(follow)
	for attempt := 1; ; attempt++ {
		resp, err := h.once(ctx, client, method, path)
		var again *temporaryError
		if err == nil || attempt == attempts || !errors.As(err, &again) {
			return resp, err
		}
		wait := max(again.after, time.Duration(attempt*attempt)*250*time.Millisecond)
		if h.Log != nil {
			h.Log.Warn("hub: trying again", "path", path, "attempt", attempt, "wait", wait, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// temporaryError may go away by itself.
type temporaryError struct {
	err   error
	after time.Duration // how long the hub asks to wait
}

func (e *temporaryError) Error() string { return e.err.Error() }
func (e *temporaryError) Unwrap() error { return e.err }

func (h Hub) once(ctx context.Context, client *http.Client, method, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, h.endpoint()+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "turnlog")
	// Compression would change what the hash and the length are of.
	req.Header.Set("Accept-Encoding", "identity")
	if h.Token != "" {
		req.Header.Set("Authorization", "Bearer "+h.Token)
	}
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &temporaryError{err: err}
	}
	if resp.StatusCode < 400 {
		return resp, nil
	}
	resp.Body.Close()
	status := fmt.Errorf("%s %s: %s", method, path, resp.Status)
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%w on %s: check the spelling and the revision, and HF_TOKEN if it is private (%w)", ErrNotFound, h.endpoint(), status)
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("%w: set HF_TOKEN, and accept the model's terms with that account if it is gated (%w)", ErrDenied, status)
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return nil, &temporaryError{err: status, after: time.Duration(min(seconds, 60)) * time.Second}
	}
	return nil, status
}
