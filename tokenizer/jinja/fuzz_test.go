package jinja_test

import (
	"errors"
	"testing"

	"turnlog.dev/tokenizer/jinja"
)

// fuzzLimits keep one input of a fuzzer short.
var fuzzLimits = jinja.Limits{Steps: 20_000, Output: 1 << 16, Memory: 1 << 22}

func noDefect(t *testing.T, err error) {
	var e *jinja.Error
	if errors.As(err, &e) && e.Kind == "Internal" {
		t.Fatal(err)
	}
}

// FuzzSource renders templates that were never meant to work.
func FuzzSource(f *testing.F) {
	vars, cases := golden(f)
	for i, c := range cases {
		if i%16 == 0 { // more seeds would take all of a short run
			f.Add(c.source)
		}
	}
	f.Fuzz(func(t *testing.T, source string) {
		template, err := jinja.Compile(source)
		if err != nil {
			var e *jinja.SyntaxError
			if !errors.As(err, &e) {
				t.Fatalf("not a syntax error: %v", err)
			}
			return
		}
		first, err := template.Render(vars, fuzzLimits)
		noDefect(t, err)
		second, again := template.Render(vars, fuzzLimits)
		if first.Text != second.Text || (err == nil) != (again == nil) {
			t.Fatalf("two renders differ: %q, %v and %q, %v", first.Text, err, second.Text, again)
		}
	})
}

// FuzzData renders a template that uses its data in every way with data that no
// one expects.
func FuzzData(f *testing.F) {
	template, err := jinja.Compile(`
{%- macro show(v, depth) -%}
{%- if v is mapping %}{% for k, x in v | dictsort %}{{ k }}={{ show(x, depth + 1) }}{% endfor %}{{ v.items() | list }}
{%- elif v is string %}{{ v | trim | upper }}{{ v.split('a') }}{{ v[1:] }}{{ v[::-1] }}{{ v | title }}{{ v.splitlines() }}{{ '%s' % v }}
{%- elif v is iterable %}{% for x in v %}{{ loop.index }}{{ show(x, depth + 1) }}{% endfor %}{{ v | map('string') | join(',') }}
{%- elif v is number %}{{ v }}{{ v | int }}{{ v | float }}{{ v * 3 }}{{ v // 2 }}{{ v % 7 }}{{ v == 1 }}{{ v | round(1) }}
{%- else %}{{ v }}{% endif %}{{ v | tojson }}{{ v | string | length }}{{ v is none }}
{%- endmacro -%}
{{ show(data, 0) }}{{ data | tojson(indent=2) }}{{ data == data }}`)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`{"b": [1, 2.5, "text a", null], "a": {"items": true, "é": "😀\n"}}`)
	f.Add(`[1e300, -7, 123456789012345678901234567890, "", {}, []]`)
	f.Fuzz(func(t *testing.T, data string) {
		v, err := jinja.FromJSON([]byte(data))
		if err != nil {
			return
		}
		_, err = template.Render(jinja.Vars{"data": v}, fuzzLimits)
		noDefect(t, err)
	})
}
