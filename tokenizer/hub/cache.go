package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// The cache has the layout of the Hugging Face libraries, which share it:
//
//	models--org--name/
//	    refs/main                    the commit that a branch or tag stood for
//	    snapshots/<commit>/<file>    links to blobs
//	    blobs/<etag>                 contents, by sha256 or by git's hash

var commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// snapshot returns the folder with a model's files, from the cache if they are
// there, else after downloading them.
func (h Hub) snapshot(ctx context.Context, repo, revision string) (folder, commit string, err error) {
	if h.Cache == "" {
		h.Cache = FromEnv().Cache
	}
	root := filepath.Join(h.Cache, "models--"+strings.ReplaceAll(repo, "/", "--"))
	commit = revision
	if !commitHash.MatchString(revision) {
		b, err := os.ReadFile(filepath.Join(root, "refs", filepath.FromSlash(revision)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", "", err
		}
		commit = strings.TrimSpace(string(b))
	}
	if commitHash.MatchString(commit) {
		folder = filepath.Join(root, "snapshots", commit)
		if usable(folder) {
			return folder, commit, nil
		}
	}
	if h.Offline {
		return "", "", fmt.Errorf("%w in the cache %s, and downloads are off (HF_HUB_OFFLINE): "+
			"download it where there is a network, or name a folder", ErrNotFound, h.Cache)
	}
	return h.download(ctx, root, repo, revision)
}

// usable reports whether a snapshot holds a tokenizer. Snapshots of other
// programs may hold weights only.
func usable(folder string) bool {
	for _, name := range []string{"tokenizer.json", "tekken.json", "tiktoken.model"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			return true
		}
	}
	return false
}

// writeAtomic writes a file so that it is either whole or not there: to a
// temporary file beside it, synced, then renamed.
func writeAtomic(name string, write func(io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".partial-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// link makes a file of a snapshot: a relative link to its blob.
func link(blob, name string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(name), blob)
	if err != nil {
		return err
	}
	if err := os.Symlink(target, name); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
