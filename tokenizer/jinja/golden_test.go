package jinja_test

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/tokenizer/jinja"
)

// TestRendersAsJinja2 compares with what jinja2 3.1.6 made of the same
// templates (testdata/generate.py).
func TestRendersAsJinja2(t *testing.T) {
	vars, cases := golden(t)
	for i, c := range cases {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Log(c.source)
			var out jinja.Output
			template, err := jinja.Compile(c.source)
			if err == nil {
				out, err = template.Render(vars, jinja.Limits{})
			}
			var e *jinja.Error
			require.False(t, errors.As(err, &e) && e.Kind == "Internal", "%v", err)
			if c.raises != "" {
				require.Error(t, err, "jinja2 raises %s; got %q", c.raises, out.Text)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.text, out.Text)
		})
	}
}

type goldenCase struct{ source, text, raises string }

func golden(t testing.TB) (jinja.Vars, []goldenCase) {
	data, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	v, err := jinja.FromJSON(data)
	require.NoError(t, err)
	file := v.(*jinja.Dict)
	given := get(file, "vars").(*jinja.Dict)
	vars := jinja.Vars{"strftime_now": jinja.Func(func([]jinja.Value) (jinja.Value, error) { return "2025-12-01 December", nil })}
	for _, name := range given.Keys() {
		vars[name] = get(given, name)
	}
	list := get(file, "cases").(*jinja.List)
	cases := make([]goldenCase, list.Len())
	for i := range cases {
		c := list.At(i).(*jinja.Dict)
		cases[i].source, _ = get(c, "source").(string)
		cases[i].text, _ = get(c, "text").(string)
		cases[i].raises, _ = get(c, "raises").(string)
	}
	return vars, cases
}

func get(d *jinja.Dict, key string) jinja.Value {
	v, _ := d.Get(key)
	return v
}
