package jet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// requestTimeout bounds one question to the server. It is longer than an
// election of a cluster's leader usually takes.
const requestTimeout = 5 * time.Second

// InProcess is an embedded server.
type InProcess interface {
	InProcessConn() (net.Conn, error)
}

// Options say where the server is.
type Options struct {
	// InProcess is an embedded server to connect to; it goes before URL.
	InProcess InProcess
	// URL of the servers, with commas between them.
	URL string
	// Name of this client, for the server's own lists.
	Name string
	// Credentials is the path of a NATS credentials file, if any.
	Credentials string
	// Token is the secret that the server asks for, if it does.
	Token  string
	TLS    *tls.Config
	Logger *slog.Logger
}

// Conn is a connection to a server. It lasts: when it breaks, it is made again
// for as long as it is not closed.
type Conn struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	logger *slog.Logger
	link   atomic.Pointer[link]
}

// link is one physical connection. Requests that were under way when it broke
// have no answer to wait for.
type link struct {
	context.Context //nolint:containedctx // ends with the connection
	broken          context.CancelFunc
}

func (c *Conn) newLink() {
	ctx, cancel := context.WithCancel(context.Background())
	c.link.Store(&link{ctx, cancel})
}

// errNoAnswer stands for a request that was given up before its caller was.
var errNoAnswer = errors.New("no answer from the log server")

// failed makes of a request's error what the caller should see: a context's
// error only if it is the caller's context that ended.
func failed(caller context.Context, err error) error {
	if caller.Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		err = errNoAnswer
	}
	return unavailable(err)
}

// patient returns a context for one question to the server: it ends with ctx,
// when the connection breaks, or when the answer is overdue.
func (c *Conn) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	stop := context.AfterFunc(c.link.Load(), cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// Dial connects.
func Dial(o Options) (*Conn, error) {
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	c := &Conn{logger: logger}
	c.newLink()
	options := []nats.Option{
		nats.Name(o.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 500*time.Millisecond),
		// A buffer would send appends again that were reported as failed.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			c.link.Load().broken()
			if err != nil {
				logger.Warn("log server disconnected", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			c.newLink()
			logger.Info("log server connected again")
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			logger.Warn("log server reports an error", "error", err, "subject", subject)
		}),
	}
	if o.InProcess != nil {
		options = append(options, nats.InProcessServer(o.InProcess))
	}
	if o.Credentials != "" {
		options = append(options, nats.UserCredentials(o.Credentials))
	}
	if o.Token != "" {
		options = append(options, nats.Token(o.Token))
	}
	if o.TLS != nil {
		options = append(options, nats.Secure(o.TLS))
	}
	nc, err := nats.Connect(o.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("journal: connect: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(requestTimeout))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("journal: connect: %w", err)
	}
	c.nc, c.js = nc, js
	return c, nil
}

// Close ends the connection. Appends that wait fail with an unknown outcome.
func (c *Conn) Close() {
	c.nc.Close()
	c.link.Load().broken()
}
