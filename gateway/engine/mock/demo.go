package mock

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"turnlog.dev/schema/rawjson"
)

// directive opens a line of a user's message that tells the demo what to do.
const directive = "mock: "

// Demo plays the model of an agent that uses tools: where the prompt offers
// tools it calls one, looks at the result, now and then calls another, and
// answers. The same prompt and seed give the same answer.
//
// A user's message may say otherwise, one line a step, in the order of the
// model's turns since that message:
//
//	mock: say TEXT
//	mock: think TEXT            before the next step, in the same turn
//	mock: call NAME {...}       and again for several calls in one turn:
//	mock: and NAME {...}
//	mock: cut N, hang N, error N, nan N    after N tokens
//	mock: status 503
//	mock: length N              ends without stop token after N words
//	mock: delay 100ms           before the next step's first byte
//	mock: pace 10ms             between the next step's chunks
//
// Steps that fail count no turn: a fault is met again by whoever tries again.
// After the last step the demo goes on as if nothing had been said.
func Demo() Script { return demo }

func demo(r Request) Reply {
	user, turns, results := -1, 0, 0
	for i, m := range r.Messages {
		switch m.Role {
		case "user":
			user, turns, results = i, 0, 0
		case "assistant":
			turns++
		case "tool":
			results++
		}
	}
	var said string
	if user >= 0 {
		said = r.Messages[user].Text
	}
	if reply, ok := step(said, turns); ok {
		return reply
	}
	rng := rand.New(rand.NewPCG(r.Seed, 2))
	offered := tools(r.Text)
	// One call, and a second or third with falling chance.
	if len(offered) > 0 && (results == 0 || results < 3 && turns == results && rng.IntN(3) == 0) {
		t := pick(offered, rng, results)
		return Say(thought(rng) + CallText(t.name, arguments(t, said, rng)))
	}
	if results > 0 {
		return Say(fmt.Sprintf("I looked %s. %s", times(results), conclude(r.Last("tool"), rng)))
	}
	return Say(conclude(said, rng))
}

// pick prefers tools that change nothing.
func pick(offered []tool, rng *rand.Rand, round int) tool {
	var harmless []tool
	for _, t := range offered {
		n := strings.ToLower(t.name)
		for _, word := range []string{"read", "list", "ls", "get", "search", "grep", "glob", "find", "bash", "shell", "lookup", "calc", "weather"} {
			if strings.Contains(n, word) {
				harmless = append(harmless, t)
				break
			}
		}
	}
	if len(harmless) == 0 {
		harmless = offered
	}
	if round == 0 {
		return harmless[0]
	}
	return harmless[rng.IntN(len(harmless))]
}

// arguments makes a value for every required parameter, or for the first one.
func arguments(t tool, said string, rng *rand.Rand) string {
	properties, _ := rawjson.Get(t.parameters, "properties")
	required := map[string]bool{}
	list, _ := rawjson.Get(t.parameters, "required")
	for e := range rawjson.Elements(list) {
		required[rawjson.Text(e)] = true
	}
	out := []byte{'{'}
	for name, schema := range rawjson.Members(properties) {
		if !required[name] && (len(required) > 0 || len(out) > 1) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ", "...)
		}
		out = append(rawjson.AppendText(out, name), ": "...)
		out = value(out, name, schema, said, rng)
	}
	return string(append(out, '}'))
}

func value(dst []byte, name string, schema []byte, said string, rng *rand.Rand) []byte {
	if options, ok := rawjson.Get(schema, "enum"); ok {
		var all [][]byte
		for e := range rawjson.Elements(options) {
			all = append(all, e)
		}
		if len(all) > 0 {
			return append(dst, all[rng.IntN(len(all))]...)
		}
	}
	kind, _ := rawjson.Get(schema, "type")
	switch rawjson.Text(kind) {
	case "integer":
		return strconv.AppendInt(dst, int64(1+rng.IntN(9)), 10)
	case "number":
		return strconv.AppendFloat(dst, float64(1+rng.IntN(99))/2, 'g', -1, 64)
	case "boolean":
		return append(dst, "true"...)
	case "array":
		return append(dst, "[]"...)
	case "object":
		return append(dst, "{}"...)
	}
	n := strings.ToLower(name)
	switch {
	case strings.Contains(n, "command"), strings.Contains(n, "cmd"):
		return rawjson.AppendText(dst, []string{"ls", "pwd", "echo hello"}[rng.IntN(3)])
	case strings.Contains(n, "path"), strings.Contains(n, "file"), strings.Contains(n, "dir"):
		return rawjson.AppendText(dst, []string{"README.md", ".", "go.mod"}[rng.IntN(3)])
	case strings.Contains(n, "pattern"), strings.Contains(n, "glob"):
		return rawjson.AppendText(dst, "*.go")
	}
	return rawjson.AppendText(dst, words(said, 3))
}

func thought(rng *rand.Rand) string {
	return []string{"", "Let me look.\n", "I will check this first.\n", "One moment: the tool knows.\n"}[rng.IntN(4)]
}

func conclude(seen string, rng *rand.Rand) string {
	seen = words(seen, 8)
	if seen == "" {
		return "There is nothing more to do."
	}
	return fmt.Sprintf([]string{
		"It says: %s. That answers the question.",
		"From %q I conclude that the task is done.",
		"The result is %s, so we are finished.",
	}[rng.IntN(3)], seen)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

// words are the first n words of a text, tags and quotes left out.
func words(text string, n int) string {
	f := strings.FieldsFunc(text, func(r rune) bool {
		return strings.ContainsRune(" \t\r\n<>/{}[]\"|\\", r)
	})
	return strings.Join(f[:min(n, len(f))], " ")
}

// step reads the directives of a user's message and returns the n-th.
func step(said string, n int) (Reply, bool) {
	var steps []Reply
	var next Reply
	for line := range strings.Lines(said) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), directive)
		if !ok {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		number, _ := strconv.Atoi(strings.TrimSpace(rest))
		end := false
		switch verb {
		case "think":
			next.Text += "<think>\n" + rest + "\n</think>\n\n"
		case "delay":
			next.Delay, _ = time.ParseDuration(rest)
		case "pace":
			next.Pace, _ = time.ParseDuration(rest)
		case "say":
			next.Text, end = next.Text+rest, true
		case "call":
			name, args, _ := strings.Cut(rest, " ")
			next.Text, end = next.Text+CallText(name, args), true
		case "and":
			if len(steps) > 0 {
				name, args, _ := strings.Cut(rest, " ")
				steps[len(steps)-1].Text += "\n" + CallText(name, args)
			}
		case "length":
			next.Text, next.NoStop, end = next.Text+strings.TrimSpace(strings.Repeat("and on ", max(1, number))), true, true
		case "status":
			next.Fault, end = Fault{Kind: Status, Status: number}, true
		case "error":
			next.Fault, end = Fault{Kind: ErrorEvent, After: number}, true
		default:
			next.Fault, end = Fault{Kind: FaultKind(verb), After: number}, true
		}
		if !end {
			continue
		}
		if next.Fault.Kind != NoFault && next.Text == "" {
			next.Text = "This answer goes wrong before it comes to its end, as it was told to."
		}
		steps, next = append(steps, next), Reply{}
	}
	if n >= len(steps) {
		return Reply{}, false
	}
	return steps[n], true
}
