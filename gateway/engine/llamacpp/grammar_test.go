package llamacpp

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/enginetest"
	"turnlog.dev/gateway/engine/mock/gbnf"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/parse"
)

// spoken samples what a grammar allows, at random, in the tokens of a model.
func spoken(g *gbnf.Grammar, tok tokenizer.Tokenizer, rng *rand.Rand) (ids []uint32) {
	for _, p := range g.Say(rng.IntN, 40) {
		switch {
		case p.No:
			ids = tok.EncodePlain(ids, "hm")
		case p.IsToken:
			ids = append(ids, p.Token)
		default:
			ids = tok.EncodePlain(ids, p.Text)
		}
	}
	return ids
}

// TestWhatAGrammarAllowsIsACallWithFittingArguments: for every family, whatever
// its grammar comes to is read as calls, and nothing but calls.
func TestWhatAGrammarAllowsIsACallWithFittingArguments(t *testing.T) {
	calls, err := enginetest.ForcedCalls()
	require.NoError(t, err)
	require.NotEmpty(t, calls)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range calls {
		source, left := grammarOf(c.Grammar.Before, *c.Grammar.Pattern)
		require.Empty(t, left, c.Name)
		g, err := gbnf.Parse(source)
		require.NoError(t, err, "%s: %s", c.Name, source)
		for range 20 {
			ids := spoken(g, c.Model.Tokenizer, rng)
			ids = append(ids, c.End)
			require.NoError(t, c.Read(ids), "%s: %s\n%s", c.Name, c.Model.Tokenizer.Decode(ids), source)
		}
	}
}

// TestAConstraintIsWrittenForTheServer: as a schema where that is all, as a
// grammar where something stands before it, and not at all where the grammar
// would leave a part of it out.
func TestAConstraintIsWrittenForTheServer(t *testing.T) {
	thought := &parse.Pattern{Kind: parse.Token, Token: 7}
	for _, c := range []struct {
		g    engine.Grammar
		want string
	}{
		{engine.Grammar{Kind: "json_object"}, `{"json_schema":{"type":"object"}}`},
		{engine.Grammar{Kind: "json_schema", Value: `{"minLength":3}`}, `{"json_schema":{"minLength":3}}`},
		{engine.Grammar{Kind: "gbnf", Value: "root ::= \"a\""}, `{"grammar":"root ::= \"a\""}`},
	} {
		o := wire.NewObject(nil)
		require.NoError(t, constrain(o, &c.g))
		require.JSONEq(t, c.want, string(o.End()))
	}
	o := wire.NewObject(nil)
	require.NoError(t, constrain(o, &engine.Grammar{Kind: "json_schema", Value: `{"enum":["a"]}`, Before: thought}))
	require.Contains(t, string(o.End()), `"root ::= <[7]> r0 \n`)
	err := constrain(wire.NewObject(nil), &engine.Grammar{Kind: "json_schema", Value: `{"type":"string","minLength":3}`, Before: thought})
	require.Equal(t, engine.Refused, engine.ClassOf(err))
	require.ErrorContains(t, err, "minLength")
}

// TestATextHoldsNoneOfWhatItMustNot: the rules are those of an automaton, which
// knows where the beginning of one text is inside another.
func TestATextHoldsNoneOfWhatItMustNot(t *testing.T) {
	source, _ := grammarOf(nil, parse.Pattern{Kind: parse.Free, Not: []string{"aab", "ac"}})
	g, err := gbnf.Parse(source)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(3, 4))
	seen := map[string]bool{}
	for range 20000 {
		for _, p := range g.Say(rng.IntN, 12) {
			require.NotContains(t, p.Text, "aab")
			require.NotContains(t, p.Text, "ac")
			seen[p.Text] = true
		}
	}
	for _, text := range []string{"", "a", "aa", "aaa", "ab"} {
		require.True(t, seen[text], text)
	}
}
