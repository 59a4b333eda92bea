package local

import (
	"cmp"
	"io/fs"
	"slices"
)

// sorted orders the entries of a folder as their keys are ordered.
func sorted(entries []fs.DirEntry) []fs.DirEntry {
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(keyName(a), keyName(b)) })
	return entries
}

func keyName(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}
