package stack

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"turnlog.dev/deploy/config"
	"turnlog.dev/gateway"
)

// keys reads the admin keys and the seed of the session keys, and makes the
// files that do not exist yet.
func keys(adminFile, seedFile string) (*gateway.Keys, error) {
	admin, err := secret(adminFile, "tla-")
	if err != nil {
		return nil, err
	}
	seed, err := secret(seedFile, "")
	if err != nil {
		return nil, err
	}
	var list []string
	for s := bufio.NewScanner(bytes.NewReader(admin)); s.Scan(); {
		if key := strings.TrimSpace(s.Text()); key != "" && !strings.HasPrefix(key, "#") {
			list = append(list, key)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s holds no key: write one on a line of its own, or remove the file to have one made", adminFile)
	}
	return gateway.NewKeys(bytes.TrimSpace(seed), list...), nil
}

// AdminKey returns the first admin key of a file.
func AdminKey(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("admin key: %w; it is in the data folder of a gateway: name that with --data, or the file with --keys.admin-file", err)
	}
	for line := range strings.Lines(string(raw)) {
		if key := strings.TrimSpace(line); key != "" && !strings.HasPrefix(key, "#") {
			return key, nil
		}
	}
	return "", fmt.Errorf("admin key: %s holds none", file)
}

// logToken reads the secret of the log, where it has one. Whoever listens makes it.
func logToken(cfg config.Log) (string, error) {
	switch {
	case cfg.TokenFile == "", cfg.URL == "" && cfg.Listen == "":
		return "", nil
	case cfg.URL == "":
		token, err := secret(cfg.TokenFile, "tll-")
		return string(bytes.TrimSpace(token)), err
	}
	token, err := os.ReadFile(cfg.TokenFile)
	if err != nil {
		return "", fmt.Errorf("log.token_file: %w; it is made where log.listen is set: copy it from there", err)
	}
	return string(bytes.TrimSpace(token)), nil
}

// serverTLS is the certificate of the embedded log, where it listens with one.
func serverTLS(cfg config.Log) (*tls.Config, error) {
	if cfg.Listen == "" || cfg.TLS.Cert == "" {
		return nil, nil
	}
	return certificate(cfg.TLS)
}

// clientTLS says whom to trust at log.url, and who this is; nil leaves it to the
// URL.
func clientTLS(cfg config.TLS) (*tls.Config, error) {
	if cfg == (config.TLS{}) {
		return nil, nil
	}
	c, err := certificate(cfg)
	if err != nil || cfg.CA == "" {
		return c, err
	}
	pem, err := os.ReadFile(cfg.CA)
	if err != nil {
		return nil, fmt.Errorf("log.tls.ca: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("log.tls.ca: %s has no certificate", cfg.CA)
	}
	return c, nil
}

func certificate(cfg config.TLS) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.Cert == "" {
		return c, nil
	}
	pair, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("log.tls: %w", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// secret reads a file of 0600, or makes it with 256 random bits. Of several
// processes that make it at once, one does.
func secret(file, prefix string) ([]byte, error) {
	raw, err := os.ReadFile(file)
	switch {
	case err == nil && len(bytes.TrimSpace(raw)) == 0:
		return nil, fmt.Errorf("%s is empty: remove it to have it made again", file)
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return raw, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	var b [32]byte
	rand.Read(b[:])
	tmp, err := os.CreateTemp(filepath.Dir(file), ".key-*") // mode 0600
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(prefix + hex.EncodeToString(b[:]) + "\n")
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(tmp.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.ReadFile(file)
}
