package dialect

import (
	"encoding/base64"
	"strings"

	"turnlog.dev/gateway"
)

// signed opens what our signatures hold. Clients take them for base64 of
// something that is none of their business, and give them back unchanged.
const signed = "turnlog:1:"

// Signature is what goes out with thinking, where a protocol has a place for
// it, and names the turn that thought it.
func Signature(turn string) string {
	return base64.StdEncoding.EncodeToString([]byte(signed + turn))
}

// SignedTurn returns the turn that a signature of ours names; "" for any other.
func SignedTurn(signature string) string {
	raw, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return ""
	}
	turn, ok := strings.CutPrefix(string(raw), signed)
	if !ok || !gateway.ValidName(turn) {
		return ""
	}
	return turn
}
