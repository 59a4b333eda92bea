package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestALogIsReadByThoseWhoKnowItsSecret reads the log of a running all-in-one
// through a port with a secret and a certificate.
func TestALogIsReadByThoseWhoKnowItsSecret(t *testing.T) {
	dir := t.TempDir()
	data, other := filepath.Join(dir, "data"), filepath.Join(dir, "other.token")
	token := filepath.Join(data, "log.token") // with the other secrets
	cert, key := certificate(t, dir)
	address := freePort(t)
	p, a := all(t, data, "--log.listen", address, "--log.token-file", token, "--log.tls.cert", cert, "--log.tls.key", key)
	require.NoError(t, a.session(t.Context(), testRand(), "g", 0, 1))
	info, err := os.Stat(token)
	require.NoError(t, err, "it is made")
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, os.WriteFile(other, []byte("guess\n"), 0o600))

	verify := func(args ...string) (string, error) {
		return output(append([]string{"verify", "--no-shards", "--data", data, "--log.url", "nats://" + address}, args...)...)
	}
	said, err := verify("--log.token-file", token, "--log.tls.ca", cert)
	require.NoError(t, err, said)
	require.Contains(t, said, "1 sessions, ")
	for remedy, args := range map[string][]string{
		"does it take log.credentials, log.token_file and log.tls?": {"--log.tls.ca", cert},
		"Authorization": {"--log.token-file", other, "--log.tls.ca", cert},
		"certificate":   {"--log.token-file", token},
		"log.token_file: open " + filepath.Join(dir, "none") + ": no such file or directory; it is made where log.listen is set: copy it from there": {"--log.token-file", filepath.Join(dir, "none")},
		"log.tls.ca: " + other + " has no certificate": {"--log.token-file", token, "--log.tls.ca", other},
	} {
		said, err := verify(args...)
		require.Error(t, err, said)
		require.Contains(t, said, remedy)
	}
	p.stop(t)

	// The same configuration, and nothing runs: who only reads serves nobody.
	require.NoError(t, os.Remove(token))
	said, err = output("verify", "--no-shards", "--data", data, "--log.listen", "0.0.0.0:0", "--log.token-file", token)
	require.NoError(t, err, said)
	require.NoFileExists(t, token)
}

// certificate makes one for 127.0.0.1 that vouches for itself, and its key.
func certificate(t *testing.T, dir string) (cert, key string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", raw)
}
