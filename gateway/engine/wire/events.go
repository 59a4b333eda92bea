package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
)

// MaxEvent bounds one event of a stream in bytes. An event may hold a whole
// prompt as ids, or all logprobs so far, so it is far above what line readers
// allow by default.
const MaxEvent = 256 << 20

// ErrEventTooLong is an event above MaxEvent.
var ErrEventTooLong = errors.New("wire: event is longer than the limit")

// Events reads a stream of server-sent events.
type Events struct {
	r    *bufio.Reader
	data []byte
	line []byte
}

// readers are those of streams that are over.
var readers = sync.Pool{New: func() any { return &Events{r: bufio.NewReaderSize(nil, 16<<10)} }}

// readerLimit is what a reader may have grown to and still be kept, in bytes.
const readerLimit = 256 << 10

// NewEvents returns a reader of the events in r.
func NewEvents(r io.Reader) *Events {
	e := readers.Get().(*Events)
	e.r.Reset(r)
	return e
}

// giveBack ends the use of e.
func (e *Events) giveBack() {
	e.r.Reset(nil)
	if cap(e.data)+cap(e.line) <= readerLimit {
		readers.Put(e)
	}
}

// Next returns the data of the next event, valid until the next call. It is
// io.EOF at the end of the stream; an event that the end cut off is
// io.ErrUnexpectedEOF.
func (e *Events) Next() ([]byte, error) {
	e.data = e.data[:0]
	fields := false
	for {
		line, err := e.readLine()
		if err != nil {
			if errors.Is(err, io.EOF) && (fields || len(line) > 0) {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if len(line) == 0 {
			if fields {
				return e.data, nil
			}
			continue
		}
		// Comments, event names and ids carry nothing for us.
		value, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		if fields {
			e.data = append(e.data, '\n')
		}
		if len(e.data)+len(value) > MaxEvent {
			return nil, ErrEventTooLong
		}
		e.data, fields = append(e.data, value...), true
	}
}

// readLine returns one line without its end.
func (e *Events) readLine() ([]byte, error) {
	e.line = e.line[:0]
	for {
		part, err := e.r.ReadSlice('\n')
		if err == nil && len(e.line) == 0 {
			return trimEnd(part), nil
		}
		e.line = append(e.line, part...)
		switch {
		case err == nil:
			return trimEnd(e.line), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return e.line, err
		case len(e.line) > MaxEvent:
			return nil, fmt.Errorf("%w of %d bytes", ErrEventTooLong, MaxEvent)
		}
	}
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
