package natsd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
)

// Mode is what an acknowledgement means.
type Mode string

// The modes of one server. A cluster runs servers of its own.
const (
	// Dev survives the death of the process; a power cut may take the last
	// half minute, and a stream that is younger than that.
	Dev Mode = "dev"
	// Single has every acknowledged event on disk: one fdatasync each.
	Single Mode = "single"
)

// SyncAlways reports whether the mode syncs before it acknowledges.
func (m Mode) SyncAlways() bool { return m == Single }

// Config says how to run a server.
type Config struct {
	Mode Mode
	// Dir holds the data. It is made if missing.
	Dir string
	// Listen is the address of the client port; empty takes only connections
	// from inside the process.
	Listen string
	// Token is what a connection must know, also one from inside the process; empty
	// takes everybody.
	Token string
	// TLS has the server's certificate; nil is no TLS. Connections from inside the
	// process need none.
	TLS *tls.Config
	// Monitor is the address of the server's HTTP monitoring, where others can
	// see how it syncs; empty is none.
	Monitor string
	// MaxBytes is the room for all streams together; see DefaultMaxBytes.
	MaxBytes int64
}

// Validate reports all faults of a configuration.
func (c Config) Validate() error {
	var errs []error
	if c.Mode != Dev && c.Mode != Single {
		errs = append(errs, fmt.Errorf("natsd: mode %q: an embedded server is %q or %q", c.Mode, Dev, Single))
	}
	if c.Dir == "" {
		errs = append(errs, errors.New("natsd: dir: missing"))
	}
	if c.MaxBytes <= 0 {
		errs = append(errs, fmt.Errorf("natsd: max bytes: %d; the log must have a limit", c.MaxBytes))
	}
	for name, address := range map[string]string{"listen": c.Listen, "monitor": c.Monitor} {
		if _, _, err := split(address); address != "" && err != nil {
			errs = append(errs, fmt.Errorf("natsd: %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func split(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("port %q: %w", text, err)
	}
	return host, int(number), nil
}

func (c Config) options() *server.Options {
	o := &server.Options{
		ServerName:         "turnlog",
		NoSigs:             true,
		NoLog:              true, // it is given a logger
		DontListen:         c.Listen == "",
		JetStream:          true,
		StoreDir:           c.Dir,
		JetStreamMaxStore:  c.MaxBytes,
		JetStreamMaxMemory: 256 << 20,
		SyncAlways:         c.Mode.SyncAlways(),
		Authorization:      c.Token,
		TLSConfig:          c.TLS,
		TLS:                c.TLS != nil,
	}
	if c.Listen != "" {
		o.Host, o.Port, _ = split(c.Listen)
		if o.Port == 0 {
			o.Port = server.RANDOM_PORT
		}
	}
	if c.Monitor != "" {
		o.HTTPHost, o.HTTPPort, _ = split(c.Monitor)
		if o.HTTPPort == 0 {
			o.HTTPPort = server.RANDOM_PORT
		}
	}
	return o
}
