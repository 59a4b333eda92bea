package wire

import (
	"fmt"
	"slices"
	"strings"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/rawjson"
)

// CheckGrammar refuses a constraint that a wire cannot carry: one that is left
// out silently would give an answer that is not what was asked for.
func CheckGrammar(g *engine.Grammar, kinds ...string) error {
	if g == nil {
		return nil
	}
	if !slices.Contains(kinds, g.Kind) {
		return &engine.Error{Class: engine.Refused, Message: fmt.Sprintf(
			"this engine cannot enforce a constraint of kind %q, only %s", g.Kind, strings.Join(kinds, ", "))}
	}
	if g.Kind == "json_schema" && rawjson.Valid([]byte(g.Value)) != nil {
		return &engine.Error{Class: engine.Refused, Message: "the JSON schema of the constraint is not JSON"}
	}
	return nil
}
