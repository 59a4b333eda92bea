// Package family knows what sets the prompt formats of model families apart:
// how a family is recognised, which tokens end a turn, what may happen where a
// turn joins the next message, how thinking is kept in the history, and how
// replies are read.
//
// Most of a format is not here. A checkpoint brings its own template, and
// tokenizer/prompt learns from it what the messages of each role begin with,
// where system messages may stand and what it writes behind a turn. A Family
// adds what no template says.
package family

import (
	"fmt"
	"slices"
	"strings"

	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/parse"
)

// Family is one prompt format. Families are values; a caller may change a
// copy.
type Family struct {
	Name string
	// Policies are the history policies that the family allows; nil is all.
	Policies []Policy
	// Format is how replies are written.
	Format parse.Format
	// Stops are the tokens that end a turn, besides the tokenizer's own
	// end-of-sequence token.
	Stops []string
	// Ends are the stop tokens that end a turn as well as the one that the
	// template writes. They stay where they were sampled, and nothing is put
	// behind them in the template's stead.
	Ends []string
	// Trim are the stop tokens that the next message replaces: they told the
	// engine to stop, and do not belong to the turn. At most one is taken off
	// the end of a turn, unless the next message begins with it.
	Trim []string
	// Keep is a JSON object of template arguments that make the template keep
	// the thinking of earlier turns, which policy keep pins. Nil if the
	// template has no such switch.
	Keep []byte
	// Thinking is the template argument that turns thinking on and off; empty
	// if there is none.
	Thinking string

	// recognise scores how well a checkpoint fits; 0 is not at all.
	recognise func(Evidence) int
}

// Policy says what becomes of a history that the vendor's template would write
// otherwise than it was sampled.
type Policy string

// The policies.
const (
	// KeepHistory leaves sampled ids, thinking included, where they are.
	KeepHistory Policy = "keep"
	// VendorHistory lets the template rewrite; where it does, the next call is a
	// new root.
	VendorHistory Policy = "vendor"
)

// Evidence is what a family is recognised by. All of it is in a checkpoint's
// files.
type Evidence struct {
	// Template is the chat template's source.
	Template string
	// Added are the tokenizer's added tokens.
	Added []tokenizer.AddedToken
	// ModelType is model_type of config.json, if it is known.
	ModelType string
}

func (e Evidence) has(token string) bool {
	return slices.ContainsFunc(e.Added, func(t tokenizer.AddedToken) bool { return t.Content == token })
}

func (e Evidence) says(parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(e.Template, p) {
			return false
		}
	}
	return true
}

// Allows reports whether the family has a history policy.
func (f Family) Allows(p Policy) bool { return f.Policies == nil || slices.Contains(f.Policies, p) }

// Detect returns the family that fits best, and Generic if none does.
func Detect(e Evidence) Family {
	best, score := Generic, 0
	for _, f := range All() {
		if f.recognise == nil {
			continue
		}
		if s := f.recognise(e); s > score {
			best, score = f, s
		}
	}
	return best
}

// ByName returns a family by its name, for those who override detection.
func ByName(name string) (Family, error) {
	var names []string
	for _, f := range All() {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return Family{}, fmt.Errorf("family: %q is not known; there are %s", name, strings.Join(names, ", "))
}
