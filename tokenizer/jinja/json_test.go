package jinja_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/tokenizer/jinja"
)

func TestJSONKeepsOrderAndTheFormOfNumbers(t *testing.T) {
	const text = `{"z": 1, "a": [1.0, -0.0, 1e+16, 1e-07, 0.1, 123456789012345678901234567890, -5, null, true], "é": "\"\\\n😀", "m": {"items": 1}}`
	v, err := jinja.FromJSON([]byte(text))
	require.NoError(t, err)
	out, err := render(t, "{{ v | tojson }}", jinja.Vars{"v": v}, jinja.Limits{})
	require.NoError(t, err)
	require.Equal(t, text, out.Text)
}

func TestJSONReadsWhatPythonReads(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": 1, "b": 2, "a": 3}`:     `{"a": 3, "b": 2}`,
		`"\ud83d\ude00\u00e9"`:         `"😀é"`,
		`"\ud83d"`:                     `"` + "\uFFFD" + `"`,
		`"\ud83dx"`:                    `"` + "\uFFFDx" + `"`,
		`"\ud83d\u0041"`:               `"` + "\uFFFDA" + `"`,
		"\"a\xffb\"":                   `"a` + "\uFFFD" + `b"`,
		`1e999`:                        `Infinity`,
		` [ 1 , 2 ] `:                  `[1, 2]`,
		`9223372036854775807`:          `9223372036854775807`,
		`9223372036854775808`:          `9223372036854775808`,
		`"\b\f\n\r\t\/"`:               `"\b\f\n\r\t/"`,
		`{"": {}}`:                     `{"": {}}`,
		`[]`:                           `[]`,
		`-0`:                           `0`,
		`1E5`:                          `100000.0`,
		`[[[[[[[[[[{"a":[]}]]]]]]]]]]`: `[[[[[[[[[[{"a": []}]]]]]]]]]]`,
		`{"a":0,"b":1,"c":2,"d":3,"e":4,"f":5,"g":6,"h":7,"i":8,"j":9}`: `{"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5, "g": 6, "h": 7, "i": 8, "j": 9}`,
	} {
		v, err := jinja.FromJSON([]byte(text))
		require.NoError(t, err, text)
		out, err := render(t, "{{ v | tojson }}", jinja.Vars{"v": v}, jinja.Limits{})
		require.NoError(t, err, text)
		require.Equal(t, want, out.Text, text)
	}
}

func TestWhatIsNotJSONIsRefused(t *testing.T) {
	for _, text := range []string{
		``, ` `, `{`, `[`, `[1`, `[1,]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `01`, `1.`, `.5`, `+1`, `1e`, `-`, `"`, `"\x"`, `"\u12"`, `"\u12g4"`,
		"\"\n\"", `nul`, `NaN`, `Infinity`, `1 2`, `[] x`, strings.Repeat("[", 100000), strings.Repeat("9", 5000),
	} {
		_, err := jinja.FromJSON([]byte(text))
		require.Error(t, err, "%.40q", text)
	}
}

func FuzzJSON(f *testing.F) {
	f.Add(`{"a": [1, 2.5, "x\u00e9\ud83d\ude00", null, true, {"b": {}}]}`)
	f.Add(`[1e5, -0.0, 123456789012345678901234567890]`)
	f.Fuzz(func(t *testing.T, text string) {
		v, err := jinja.FromJSON([]byte(text))
		if valid := json.Valid([]byte(text)); (err == nil) != valid && (err == nil || len(text) < 400) {
			t.Fatalf("valid JSON is %v, and the error %v", valid, err)
		}
		if err != nil {
			return
		}
		out, err := render(t, "{{ v | tojson }}", jinja.Vars{"v": v}, jinja.Limits{})
		require.NoError(t, err)
		again, err := jinja.FromJSON([]byte(strings.ReplaceAll(out.Text, "Infinity", "1e999")))
		require.NoError(t, err)
		same, err := render(t, "{{ a == b }}", jinja.Vars{"a": v, "b": again}, jinja.Limits{})
		require.NoError(t, err)
		require.Equal(t, "True", same.Text)
	})
}
