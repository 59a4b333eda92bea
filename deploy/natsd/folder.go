package natsd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"
)

// The data folder holds the server's own folder and these two files.
const (
	markName = "turnlog-log"
	lockName = "turnlog-log.lock"
	markText = "turnlog log, layout 1\n"
)

// folder is an open data folder.
type folder struct {
	dir  string
	lock *os.File
}

// openFolder locks the folder and makes sure that what is in it is ours and
// readable, before a server touches it.
func openFolder(dir string) (*folder, error) {
	if err := inspect(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil { // prompts are in it
		return nil, fmt.Errorf("natsd: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("natsd: %w", err)
	}
	// The kernel gives the lock back however the process ends.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("%w: %s is locked by another process", ErrLocked, dir)
	}
	f := &folder{dir, lock}
	if err := f.check(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *folder) close() { _ = f.lock.Close() }

// inspect refuses a folder that has anything in it but no mark of ours.
func inspect(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("natsd: %w", err)
	}
	mark, err := os.ReadFile(filepath.Join(dir, markName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == lockName })
		if len(entries) > 0 {
			return fmt.Errorf("%w: %s has %s in it, and no %s", ErrForeign, dir, entries[0].Name(), markName)
		}
		return nil
	case err != nil:
		return fmt.Errorf("natsd: %w", err)
	case string(mark) != markText:
		return fmt.Errorf("%w: %s says %q, this program writes %q", ErrForeign, filepath.Join(dir, markName), mark, markText)
	}
	return nil
}

// check reads the description of every stream: the server would pass over a
// stream whose description it cannot read, and a new one would take its place.
func (f *folder) check() error {
	mark := filepath.Join(f.dir, markName)
	if _, err := os.Stat(mark); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(mark, []byte(markText), 0o600); err != nil {
			return fmt.Errorf("natsd: %w", err)
		}
	}
	streams, err := f.streams()
	if err != nil {
		return err
	}
	for _, s := range streams {
		raw, err := os.ReadFile(filepath.Join(s.path, "meta.inf"))
		if err != nil {
			return fmt.Errorf("%w: stream %s has no description: %w", ErrCorrupt, s.name, err)
		}
		var meta struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(raw, &meta); err != nil || meta.Name != s.name {
			return fmt.Errorf("%w: the description of stream %s in %s cannot be read", ErrCorrupt, s.name, s.path)
		}
	}
	return nil
}

// recovered makes sure that the server has opened every stream that is there.
func (f *folder) recovered(srv *server.Server) error {
	streams, err := f.streams()
	if err != nil {
		return err
	}
	account := srv.GlobalAccount()
	open, err := srv.Jsz(&server.JSzOptions{Account: account.Name, Streams: true})
	if err != nil {
		return fmt.Errorf("natsd: list streams: %w", err)
	}
	var names []string
	for _, a := range open.AccountDetails {
		for _, s := range a.Streams {
			names = append(names, s.Name)
		}
	}
	for _, s := range streams {
		if !slices.Contains(names, s.name) {
			return fmt.Errorf("%w: the server cannot open stream %s in %s; its log says why", ErrCorrupt, s.name, s.path)
		}
	}
	return nil
}

type streamFolder struct{ name, path string }

// streams lists the stream folders of the one account that is used here.
func (f *folder) streams() ([]streamFolder, error) {
	root := filepath.Join(f.dir, server.JetStreamStoreDir, server.DEFAULT_GLOBAL_ACCOUNT, "streams")
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("natsd: %w", err)
	}
	var list []streamFolder
	for _, e := range entries {
		if e.IsDir() {
			list = append(list, streamFolder{e.Name(), filepath.Join(root, e.Name())})
		}
	}
	return list, nil
}
