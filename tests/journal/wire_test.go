package journal_test

import (
	"net"
	"sync"
	"sync/atomic"

	"turnlog.dev/schema/journal/jet"
)

// wire is the way to a server, which can be held up and cut, and counts what
// comes back.
type wire struct {
	received atomic.Int64

	mu     sync.Mutex
	server jet.InProcess // nil while there is no way
	conns  []net.Conn
	held   chan struct{} // not nil while nothing comes back
}

func newWire(server jet.InProcess) *wire { return &wire{server: server} }

// InProcessConn implements jet.InProcess.
func (w *wire) InProcessConn() (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.server == nil {
		return nil, net.ErrClosed
	}
	conn, err := w.server.InProcessConn()
	if err != nil {
		return nil, err
	}
	w.conns = append(w.conns, conn)
	return &wireConn{conn, w}, nil
}

// cut breaks all connections; new ones go to server.
func (w *wire) cut(server jet.InProcess) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.server, w.conns = server, nil
}

// hold lets requests through and keeps the answers, until the returned function
// is called.
func (w *wire) hold() (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = make(chan struct{})
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		close(w.held)
		w.held = nil
	}
}

type wireConn struct {
	net.Conn
	wire *wire
}

func (c *wireConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wire.received.Add(int64(n))
	c.wire.mu.Lock()
	held := c.wire.held
	c.wire.mu.Unlock()
	if held != nil {
		<-held
	}
	return n, err
}
