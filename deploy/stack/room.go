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
	streams, server int64
	file            string
}

// openRoom settles the space for the log in a data folder. Without a wish it is
// settled once, at the first start, as a fifth of the free disk: a log whose
// limits moved with every file on the disk would be full by surprise.
func openRoom(data string, wish int64) (room, error) {
	r := room{file: filepath.Join(data, "log.room"), streams: wish}
	var last int64
	text, err := os.ReadFile(r.file)
	switch {
	case err == nil:
		if last, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err != nil || last <= 0 {
			return r, fmt.Errorf("%s should hold a number of bytes; remove it to have the room settled again", r.file)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return r, err
	}
	if r.streams == 0 {
		r.streams = last
	}
	if r.streams == 0 {
		if r.streams, err = natsd.DefaultMaxBytes(data); err != nil {
			return r, err
		}
	}
	r.server = max(r.streams, last)
	return r, os.WriteFile(r.file, []byte(strconv.FormatInt(r.server, 10)+"\n"), 0o644)
}

// settled says that the streams have their sizes.
func (r room) settled() error {
	if r.server == r.streams {
		return nil
	}
	return os.WriteFile(r.file, []byte(strconv.FormatInt(r.streams, 10)+"\n"), 0o644)
}
