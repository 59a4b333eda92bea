package stack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"turnlog.dev/deploy/natsd"
)

// room is how much space an embedded log may take.
type room struct {
	// streams is what its streams share, server what the server allows. The
	// server must have room for the streams as they were at the last start,
	// until they have been given their new sizes.
	streams, server, last int64
	file                  string
}

// openRoom settles the space for the log in a data folder. Without a wish it is
// settled once, at the first start, as a fifth of the free disk: a log whose
// limits moved with every file on the disk would be full by surprise.
func openRoom(data string, wish int64) (room, error) {
	r := room{file: filepath.Join(data, "log.room"), streams: wish}
	text, err := os.ReadFile(r.file)
	switch {
	case err == nil:
		if r.last, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err != nil || r.last <= 0 {
			return r, fmt.Errorf("%s should hold a number of bytes; remove it to have the room settled again", r.file)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return r, err
	}
	r.streams = or(r.streams, r.last)
	if r.streams == 0 {
		if r.streams, err = natsd.DefaultMaxBytes(data); err != nil {
			return r, err
		}
	}
	r.server = max(r.streams, r.last)
	return r, nil
}

// remember notes what the server allows. The folder must be locked.
func (r *room) remember() error { return r.write(r.server) }

// settled notes that the streams have their sizes.
func (r *room) settled() error { return r.write(r.streams) }

func (r *room) write(n int64) error {
	if n == r.last {
		return nil
	}
	r.last = n
	return writeFile(r.file, strconv.FormatInt(n, 10)+"\n")
}
