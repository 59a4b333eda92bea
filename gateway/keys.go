package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"strings"
)

// Keys checks who is calling. Admin keys open sessions, assign rewards and
// read; a session key makes model calls of its one session.
type Keys struct {
	admin [][sha256.Size]byte
	seed  []byte
}

// sessionKeyPrefix marks session keys: tls-<session>.<secret>.
const sessionKeyPrefix = "tls-"

// NewKeys returns the keys of a deployment. seed is a secret that all its
// gateways share: session keys are derived from it, so that opening a session
// again gives the same key.
func NewKeys(seed []byte, admin ...string) *Keys {
	k := &Keys{seed: seed}
	for _, a := range admin {
		k.admin = append(k.admin, sha256.Sum256([]byte(a)))
	}
	return k
}

// IsAdmin reports whether key is an admin key.
func (k *Keys) IsAdmin(key string) bool {
	h := sha256.Sum256([]byte(key))
	found := 0
	for _, a := range k.admin {
		found |= subtle.ConstantTimeCompare(h[:], a[:])
	}
	return found == 1
}

// Session returns the key of a session.
func (k *Keys) Session(tenant, session string) string {
	m := hmac.New(sha256.New, k.seed)
	m.Write([]byte(tenant + "\x00" + session))
	return sessionKeyPrefix + session + "." + encoding.EncodeToString(m.Sum(nil))[:40]
}

// SessionOf returns the session that a key names, which it has yet to prove.
func SessionOf(key string) (session string, ok bool) {
	rest, ok := strings.CutPrefix(key, sessionKeyPrefix)
	if !ok {
		return "", false
	}
	session, _, ok = strings.Cut(rest, ".")
	return session, ok && ValidName(session)
}

// keyHash is what SessionOpened holds of a key.
func keyHash(key string) []byte {
	h := sha256.Sum256([]byte(key))
	return h[:]
}

// sameKey compares a key with the hash in SessionOpened in constant time.
func sameKey(key string, hash []byte) bool {
	return subtle.ConstantTimeCompare(keyHash(key), hash) == 1
}
