// Package hub opens a model's tokenizer and chat template from where models
// are kept: a folder, the cache of the Hugging Face libraries, or the hub
// itself, from which it downloads into that cache.
//
// Only the small files are fetched, never weights, and code that a model ships
// is never run.
package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"turnlog.dev/tokenizer"
)

// Errors to test for. They are wrapped.
var (
	// ErrNotFound: no such model, revision or file.
	ErrNotFound = errors.New("not found")
	// ErrDenied: the model is private or gated and the token does not open it.
	ErrDenied = errors.New("access denied")
	// ErrChecksum: a downloaded file is not what the hub announced.
	ErrChecksum = errors.New("checksum mismatch")
)

// Hub says where models come from. The zero value works as FromEnv does
// without any variable set.
type Hub struct {
	// Endpoint is the hub's address; "" means the public one.
	Endpoint string
	// Token is sent as a bearer token to the endpoint, and to no other host.
	Token string
	// Cache is the folder that holds models--org--name folders; "" means the
	// libraries' own default.
	Cache string
	// Offline forbids downloads.
	Offline bool
	// Client makes requests; nil means one with reasonable timeouts.
	Client *http.Client
	// Progress is told how a download goes on; nil for nobody.
	Progress func(Progress)
	// Fallback opens a tokenizer.json that tokenizer/bpe refuses; nil for none.
	Fallback func(tokenizerJSON []byte) (tokenizer.Tokenizer, error)
	// Log gets a line for each retry; nil for none.
	Log *slog.Logger
}

// publicEndpoint is where models are if nothing else is said.
const publicEndpoint = "https://huggingface.co"

// FromEnv reads what the Hugging Face libraries read: HF_ENDPOINT, HF_TOKEN
// (or the file token in HF_HOME), HF_HUB_CACHE, HF_HOME, HF_HUB_OFFLINE.
func FromEnv() Hub {
	home := os.Getenv("HF_HOME")
	if home == "" {
		cache := os.Getenv("XDG_CACHE_HOME")
		if cache == "" {
			if user, err := os.UserHomeDir(); err == nil {
				cache = filepath.Join(user, ".cache")
			}
		}
		home = filepath.Join(cache, "huggingface")
	}
	h := Hub{
		Endpoint: os.Getenv("HF_ENDPOINT"),
		Token:    os.Getenv("HF_TOKEN"),
		Cache:    os.Getenv("HF_HUB_CACHE"),
	}
	if h.Cache == "" {
		h.Cache = filepath.Join(home, "hub")
	}
	if h.Token == "" {
		if b, err := os.ReadFile(filepath.Join(home, "token")); err == nil {
			h.Token = strings.TrimSpace(string(b))
		}
	}
	switch strings.ToLower(os.Getenv("HF_HUB_OFFLINE")) {
	case "1", "true", "yes", "on":
		h.Offline = true
	}
	return h
}

// Open opens the model that ref names: a folder, or org/name, or
// org/name@revision, where a revision is a branch, a tag or a commit. What is
// in the cache is used without asking the hub; pin a commit to be sure what
// that is.
func (h Hub) Open(ctx context.Context, ref string) (*Model, error) {
	if info, err := os.Stat(ref); err == nil {
		if !info.IsDir() {
			return nil, fmt.Errorf("hub: open %s: this is a file; name the folder that holds tokenizer.json", ref)
		}
		return h.OpenFS(os.DirFS(ref), ref)
	}
	repo, revision, err := parseRef(ref)
	if err != nil {
		return nil, fmt.Errorf("hub: open %s: %w", ref, err)
	}
	folder, commit, err := h.snapshot(ctx, repo, revision)
	if err != nil {
		return nil, fmt.Errorf("hub: open %s: %w", ref, err)
	}
	m, err := h.OpenFS(os.DirFS(folder), ref)
	if err != nil {
		return nil, err
	}
	m.Revision = commit
	return m, nil
}

// OpenFS opens a model from its files. ref is only for messages.
func (h Hub) OpenFS(files fs.FS, ref string) (*Model, error) {
	m, err := h.load(files)
	if err != nil {
		return nil, fmt.Errorf("hub: open %s: %w", ref, err)
	}
	m.Ref = ref
	return m, nil
}

// parseRef splits org/name@revision.
func parseRef(ref string) (repo, revision string, err error) {
	repo, revision, pinned := strings.Cut(ref, "@")
	if !pinned {
		revision = "main"
	}
	org, name, ok := strings.Cut(repo, "/")
	if !ok || !validName(org) || !validName(name) || !validRevision(revision) {
		return "", "", errors.New("no such folder, and not of the form org/name or org/name@revision")
	}
	return repo, revision, nil
}

// validName keeps names inside the cache folder.
func validName(s string) bool {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)) {
			return false
		}
	}
	return s != "" && !strings.HasPrefix(s, ".") && !strings.Contains(s, "..") && !strings.Contains(s, "--")
}

func validRevision(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if !validName(strings.ReplaceAll(part, "--", "-")) {
			return false
		}
	}
	return true
}
