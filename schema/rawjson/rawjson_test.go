package rawjson_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/racetest"
	"turnlog.dev/schema/rawjson"
)

var seeds = []string{
	`null`, `true`, ` {"a":1.0,"b":[1e3,-0.0,12345678901234567890],"a":"x"} `,
	`"\ud83d\ude00 \ud83d \u0041\/\b\f\n\r\t"`, `[]`, `{}`, `[{},[[]],""]`, `{"":{"":[null]}}`,
	"\"\x80\xff\"", `01`, `-`, `1.`, `1e`, `"a`, `{"a"}`, `[1,]`, `{"a":1,}`, `nul`, `[1 2]`, "\"\x01\"", `"\u12g4"`, ``,
}

func TestValidAcceptsExactlyWhatEncodingJSONAccepts(t *testing.T) {
	for _, s := range seeds {
		require.Equal(t, json.Valid([]byte(s)), rawjson.Valid([]byte(s)) == nil, "%q", s)
	}
}

func TestDepthIsLimited(t *testing.T) {
	deep := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	require.NoError(t, rawjson.Valid(deep(rawjson.MaxDepth)))
	var syntax *rawjson.SyntaxError
	require.ErrorAs(t, rawjson.Valid(deep(rawjson.MaxDepth+1)), &syntax)
	require.Equal(t, rawjson.MaxDepth, syntax.Offset)
}

func TestSpliceKeepsEveryOtherByte(t *testing.T) {
	set := func(k, v string) rawjson.Set {
		if v == "" {
			return rawjson.Set{Key: k}
		}
		return rawjson.Set{Key: k, Value: []byte(v)}
	}
	for _, c := range []struct {
		raw  string
		sets []rawjson.Set
		want string
	}{
		{`{"a": 1.0 , "b":"\u0041"}`, []rawjson.Set{set("a", "2")}, `{"a": 2 , "b":"\u0041"}`},
		{`{"a":1,"b":2,"c":3}`, []rawjson.Set{set("a", "")}, `{"b":2,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, []rawjson.Set{set("b", "")}, `{"a":1,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, []rawjson.Set{set("c", "")}, `{"a":1,"b":2}`},
		{`{"a":1}`, []rawjson.Set{set("a", ""), set("z", "[]")}, `{"z":[]}`},
		{`{}`, []rawjson.Set{set("z", "9")}, `{"z":9}`},
		{`{"a":1,"a":2}`, []rawjson.Set{set("a", "3")}, `{"a":3,"a":3}`},
		{`[1]`, []rawjson.Set{set("a", "3")}, `[1]`},
	} {
		require.Equal(t, c.want, string(rawjson.Splice(nil, []byte(c.raw), c.sets...)), "%s", c.raw)
	}
}

func FuzzAgreesWithEncodingJSON(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		valid := rawjson.Valid(b) == nil
		if bytes.Count(b, []byte("["))+bytes.Count(b, []byte("{")) < rawjson.MaxDepth {
			require.Equal(t, json.Valid(b), valid)
		}
		// Nothing panics on what is not valid.
		rawjson.Text(b)
		for range rawjson.Members(b) {
		}
		for range rawjson.Elements(b) {
		}
		spliced := rawjson.Splice(nil, b, rawjson.Set{Key: "k", Value: []byte("1")})
		if !valid {
			return
		}
		switch rawjson.KindOf(b) {
		case rawjson.Object:
			var want map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(b, &want))
			got := map[string]json.RawMessage{}
			for k, v := range rawjson.Members(b) {
				got[k] = v
			}
			require.Equal(t, want, got)
			for k := range want {
				v, ok := rawjson.Get(b, k)
				require.True(t, ok)
				require.Equal(t, want[k], json.RawMessage(v))
			}
			require.NoError(t, rawjson.Valid(spliced), "%s", spliced)
			v, _ := rawjson.Get(spliced, "k")
			require.Equal(t, "1", string(v))
			removed := rawjson.Splice(nil, spliced, rawjson.Set{Key: "k"})
			require.NoError(t, rawjson.Valid(removed), "%s", removed)
			delete(want, "k")
			n := map[string]json.RawMessage{}
			require.NoError(t, json.Unmarshal(removed, &n))
			require.Equal(t, want, n)
		case rawjson.Array:
			var want, got []json.RawMessage
			require.NoError(t, json.Unmarshal(b, &want))
			for v := range rawjson.Elements(b) {
				got = append(got, v)
			}
			require.Len(t, got, len(want))
			for i := range want {
				require.Equal(t, want[i], got[i])
			}
		case rawjson.String:
			var want string
			require.NoError(t, json.Unmarshal(b, &want))
			require.Equal(t, want, rawjson.Text(b))
			var back string
			require.NoError(t, json.Unmarshal(rawjson.AppendText(nil, want), &back))
			require.Equal(t, want, back)
		}
	})
}

func TestKeysOfMessagesAndLookupsCostNoMemory(t *testing.T) {
	raw := []byte(`{"role":"assistant","content":null,"tool_calls":[],"id":"a","type":"function","name":"f","arguments":"{}"}`)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		n := 0
		for range rawjson.Members(raw) {
			n++
		}
		if _, ok := rawjson.Get(raw, "tool_calls"); !ok || n != 7 {
			t.Fatal("a key that is there")
		}
	}))
}

func TestAKeyIsFoundHoweverItIsSpelled(t *testing.T) {
	for raw, want := range map[string]string{
		`{"a":1,"\u0061":2}`: "2", `{"ro\u006ce":3}`: "3", `{"role":4}`: "4",
	} {
		key := "role"
		if want == "2" {
			key = "a"
		}
		got, ok := rawjson.Get([]byte(raw), key)
		require.True(t, ok, raw)
		require.Equal(t, want, string(got))
		require.Equal(t, `{"x":0}`, string(rawjson.Splice(nil, rawjson.Splice(nil, []byte(raw), rawjson.Set{Key: key}), rawjson.Set{Key: "x", Value: []byte("0")})))
	}
	_, ok := rawjson.Get([]byte(`{"rol":1,"roles":2,"\"role":3}`), "role")
	require.False(t, ok)
}

// Texts are read and written a word at a time: what is found must not depend on
// where in a word it stands.
func TestEveryByteAtEveryPlaceIsSpelledAndReadAlike(t *testing.T) {
	spelled := map[byte]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`}
	for c := range 0x20 {
		if spelled[byte(c)] == "" {
			spelled[byte(c)] = fmt.Sprintf(`\u%04x`, c)
		}
	}
	for c := range 0x100 {
		one := spelled[byte(c)]
		switch {
		case c >= 0x80:
			one = "\ufffd"
		case one == "":
			one = string(rune(c))
		}
		for before := range 18 {
			for after := range 10 {
				text := strings.Repeat("a", before) + string([]byte{byte(c)}) + strings.Repeat("é", after)
				want := `"` + strings.Repeat("a", before) + one + strings.Repeat("é", after) + `"`
				got := rawjson.AppendText([]byte("x"), text)
				require.Equal(t, "x"+want, string(got))
				got = got[1:]
				require.NoError(t, rawjson.Valid(got))
				var back string
				require.NoError(t, json.Unmarshal(got, &back))
				require.Equal(t, back, rawjson.Text(got))

				raw := []byte(`"` + text + `"`) // as it is
				require.Equal(t, json.Valid(raw), rawjson.Valid(raw) == nil, "%q", raw)
				if c != '"' && c != '\\' && c >= 0x20 {
					require.NoError(t, json.Unmarshal(raw, &back))
					require.Equal(t, back, rawjson.Text(raw))
				}
			}
		}
	}
	all := strings.Repeat("\x00\x1f\"\\\u00e9\U0001f600ab", 100)
	var back string
	require.NoError(t, json.Unmarshal(rawjson.AppendText(nil, all), &back))
	require.Equal(t, all, back)
	require.Equal(t, all, rawjson.Text(rawjson.AppendText(nil, all)))
}

func TestATextCostsOneAllocationToWriteAndOneToRead(t *testing.T) {
	if racetest.On {
		t.Skip("the race detector allocates")
	}
	plain := strings.Repeat("The quick brown fox. ", 3000)
	for _, text := range []string{plain, strings.ReplaceAll(plain, "fox. ", "fox.\n")} {
		raw := rawjson.AppendText(nil, text)
		require.LessOrEqual(t, testing.AllocsPerRun(10, func() { rawjson.AppendText(nil, text) }), 1.0)
		require.LessOrEqual(t, testing.AllocsPerRun(10, func() { rawjson.Text(raw) }), 1.0)
		require.Zero(t, testing.AllocsPerRun(10, func() { _ = rawjson.Valid(raw) }))
	}
}

// Of long texts without anything special much is looked at together.
func TestASpecialByteIsFoundHoweverFarItIs(t *testing.T) {
	fill := strings.Repeat("The quick brown fox. ", 200)
	for before := range 2500 {
		for _, c := range []struct{ in, out string }{{`"`, `\"`}, {`\`, `\\`}, {"\n", `\n`}, {"\x1f", `\u001f`}, {"\x7f", "\x7f"}, {"é", "é"}, {"\xff", "\ufffd"}} {
			after := fill[before : before+before%150]
			got := rawjson.AppendText(nil, fill[:before]+c.in+after)
			if want := `"` + fill[:before] + c.out + after + `"`; string(got) != want {
				t.Fatalf("%q behind %d bytes became %q", c.in, before, got)
			}
			if err := rawjson.Valid(got); err != nil {
				t.Fatalf("%q behind %d bytes: %v", c.in, before, err)
			}
		}
		var syntax *rawjson.SyntaxError
		require.ErrorAs(t, rawjson.Valid([]byte(`"`+fill[:before]+"\n"+fill[:100]+`"`)), &syntax)
		require.Equal(t, 1+before, syntax.Offset)
	}
}
