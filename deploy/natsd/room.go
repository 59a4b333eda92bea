package natsd

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
)

// DefaultMaxBytes is a fifth of the disk space that a log in dir could have:
// what is free, and what the log holds already, so that the answer does not
// shrink as the log fills.
func DefaultMaxBytes(dir string) (int64, error) {
	used, err := usedBytes(dir)
	if err != nil {
		return 0, fmt.Errorf("natsd: size of %s: %w", dir, err)
	}
	path := dir
	var stat syscall.Statfs_t
	for {
		err := syscall.Statfs(path, &stat)
		if err == nil {
			break
		}
		if parent := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && parent != path {
			path = parent
			continue
		}
		return 0, fmt.Errorf("natsd: free space of %s: %w", path, err)
	}
	free := int64(stat.Bavail) * int64(stat.Bsize)
	return (free + used) / 5, nil
}

func usedBytes(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // not made yet, or removed while walking
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}
