package jinja_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/tokenizer/jinja"
)

func render(t testing.TB, source string, vars jinja.Vars, limits jinja.Limits) (jinja.Output, error) {
	template, err := jinja.Compile(source)
	require.NoError(t, err)
	return template.Render(vars, limits)
}

// TestNothingExhaustsTheProcess holds templates and data that take all memory,
// all time or all stack of an engine without budgets.
func TestNothingExhaustsTheProcess(t *testing.T) {
	double := func(step string, times string) string {
		return "{% set ns = namespace(x=" + step + ") %}{% for i in range(" + times + ") %}{% set ns.x = "
	}
	for name, c := range map[string]struct {
		source string
		want   error
	}{
		"endless nesting of loops":    {strings.Repeat("{% for i in range(1000) %}", 5) + strings.Repeat("{% endfor %}", 5), jinja.ErrSteps},
		"comparing a shared tree":     {double("[1]", "60") + "[ns.x, ns.x] %}{% endfor %}{{ ns.x == ns.x }}", jinja.ErrSteps},
		"ordering a shared tree":      {double("[1]", "60") + "[ns.x, ns.x] %}{% endfor %}{{ ns.x < ns.x }}", jinja.ErrSteps},
		"a macro that calls itself":   {"{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", jinja.ErrDepth},
		"a loop that recurs forever":  {"{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}", jinja.ErrDepth},
		"printing a deep list":        {double("[]", "5000") + "[ns.x] %}{% endfor %}{{ ns.x }}", jinja.ErrDepth},
		"writing a deep list as JSON": {double("[]", "5000") + "[ns.x] %}{% endfor %}{{ ns.x | tojson }}", jinja.ErrDepth},
		"comparing deep lists":        {double("[]", "5000") + "[ns.x] %}{% endfor %}{{ ns.x == ns.x }}", jinja.ErrDepth},
		"a namespace in itself":       {"{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", jinja.ErrDepth},
		"long output":                 {"{% for i in range(100000) %}{{ 'x' * 100 }}{% endfor %}", jinja.ErrOutput},
		"doubling a string":           {double("'x'", "60") + "ns.x + ns.x %}{% endfor %}", jinja.ErrMemory},
		"doubling by ~":               {double("'x'", "60") + "ns.x ~ ns.x %}{% endfor %}", jinja.ErrMemory},
		"doubling a list":             {double("[1]", "60") + "ns.x + ns.x %}{% endfor %}", jinja.ErrMemory},
		"printing a shared tree":      {double("[1]", "60") + "[ns.x, ns.x] %}{% endfor %}{{ ns.x | string | length }}", jinja.ErrSteps},
		"a JSON text of a tree":       {double("[1]", "60") + "[ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson | length }}", jinja.ErrSteps},
		"repeating a string":          {"{{ 'x' * 10 ** 12 }}", jinja.ErrMemory},
		"repeating beyond int64":      {"{{ 'x' * 10 ** 30 }}", jinja.ErrMemory},
		"repeating a list":            {"{{ [1] * 10 ** 12 }}", jinja.ErrMemory},
		"a huge power":                {"{{ 9 ** (9 ** 9) }}", jinja.ErrMemory},
		"products of big integers":    {double("3", "60") + "ns.x * ns.x %}{% endfor %}", jinja.ErrMemory},
		"padding":                     {"{{ 'x'.ljust(10 ** 12) }}", jinja.ErrMemory},
		"centring":                    {"{{ 'x'.center(10 ** 12) }}", jinja.ErrMemory},
		"zeros":                       {"{{ 'x'.zfill(10 ** 12) }}", jinja.ErrMemory},
		"replacing by much":           {"{{ ('x' * 10 ** 5).replace('', 'y' * 10 ** 5) }}", jinja.ErrMemory},
		"joining by much":             {"{{ ('y' * 10 ** 5).join(range(10 ** 5) | map('string')) }}", jinja.ErrMemory},
		"the join filter":             {"{{ range(10 ** 5) | join('y' * 10 ** 5) }}", jinja.ErrMemory},
		"indenting":                   {"{{ ('x\n' * 10 ** 5) | indent(10 ** 6) }}", jinja.ErrMemory},
		"indented JSON":               {"{{ range(10 ** 5) | list | tojson(indent=10 ** 6) }}", jinja.ErrMemory},
		"separators of JSON":          {"{{ range(10 ** 5) | list | tojson(separators=('y' * 10 ** 5, ':')) }}", jinja.ErrMemory},
		"a wide conversion":           {"{{ '%1000000000d' % 1 }}{{ '%1000000000d' % 1 }}", jinja.ErrMemory},
		"a precise conversion":        {"{{ '%.1000000000f' % 1 }}{{ '%.1000000000f' % 1 }}", jinja.ErrMemory},
		"filling batches":             {"{{ [1] | batch(10 ** 12, 0) | list }}", jinja.ErrMemory},
		"a key of a shared tree":      {double("(1,)", "60") + "(ns.x, ns.x) %}{% endfor %}{{ ns.x in {} }}", jinja.ErrMemory},
		"a shared tree that is a key": {double("(1,)", "60") + "(ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}", jinja.ErrMemory},
		"unique shared trees":         {double("(1,)", "60") + "(ns.x, ns.x) %}{% endfor %}{{ [ns.x] | unique | list }}", jinja.ErrMemory},
		"a deep key":                  {double("()", "5000") + "(ns.x,) %}{% endfor %}{{ {}[ns.x] }}", jinja.ErrDepth},
		"stripping many of many":      {"{{ ('x' * 10 ** 6).strip('y' * 10 ** 6 + 'x') }}", jinja.ErrSteps},
		"trimming many of many":       {"{{ ('x' * 10 ** 6) | trim('y' * 10 ** 6 + 'x') }}", jinja.ErrSteps},
		"reading a long text":         {"{% set s = 'x' * 10 ** 6 %}{% for i in range(1000) %}{{ s | length }}{% endfor %}", jinja.ErrSteps},
		"searching a long text":       {"{% set s = 'x' * 10 ** 6 %}{% for i in range(1000) %}{{ 'y' in s }}{% endfor %}", jinja.ErrSteps},
		"finding in a long text":      {"{% set s = 'x' * 10 ** 6 %}{% for i in range(1000) %}{{ s.find('y') }}{% endfor %}", jinja.ErrSteps},
		"comparing long texts":        {"{% set s = 'x' * 10 ** 6 %}{% set r = 'x' * 10 ** 6 %}{% for i in range(1000) %}{{ s == r }}{{ s < r }}{% endfor %}", jinja.ErrSteps},
		"elements of a long text":     {"{% set s = 'x' * 10 ** 6 %}{% for i in range(1000) %}{{ s[-1] }}{{ s[-9:] }}{% endfor %}", jinja.ErrSteps},
		"keys of long text":           {"{% set s = 'x' * 10 ** 6 %}{% for i in range(1000) %}{{ {}[s] }}{{ {}.get(s) }}{% endfor %}", jinja.ErrSteps},
		"products of huge integers":   {"{% set n = 2 ** 65000 %}{% for i in range(1000) %}{{ n * n // n == 1 }}{% endfor %}", jinja.ErrMemory},
		"divisions of huge integers":  {"{% set n = 2 ** 65000 %}{% for i in range(1000) %}{{ n // 3 ** 30000 == 1 }}{% endfor %}", jinja.ErrSteps},
		"the filter center":           {"{{ 'x' | center(10 ** 12) }}", jinja.ErrMemory},
		"many slices":                 {"{{ [1] | slice(10 ** 12) | list }}", jinja.ErrMemory},
		"grouping shared trees":       {double("[1]", "60") + "[ns.x, ns.x] %}{% endfor %}{{ [ns.x, ns.x] | groupby(none) }}", jinja.ErrSteps},
		"many groups":                 {"{% for i in range(1000) %}{{ range(1000) | groupby(none) | length }}{% endfor %}", jinja.ErrMemory},
		"wrapping by much":            {"{{ ('x ' * 10 ** 4) | wordwrap(1, true, 'y' * 10 ** 5) }}", jinja.ErrMemory},
		"wrapping a long word":        {"{{ ('x' * 10 ** 6) | wordwrap(1) }}", jinja.ErrMemory},
		"pretty shared trees":         {double("[1]", "60") + "[ns.x, ns.x] %}{% endfor %}{{ ns.x | pprint }}", jinja.ErrSteps},
		"a pretty deep list":          {double("[]", "5000") + "[ns.x] %}{% endfor %}{{ ns.x | pprint }}", jinja.ErrDepth},
		"pretty lines of a deep list": {double("['x' * 80, 'y']", "900") + "[ns.x] %}{% endfor %}{{ ns.x | pprint }}{{ ns.x | pprint }}{{ ns.x | pprint }}", jinja.ErrSteps},
		"links with much":             {"{{ ('xy.com ' * 10 ** 3) | urlize(target='y' * 10 ** 5) }}", jinja.ErrMemory},
		"links in a long word":        {"{{ ('a.' * 10 ** 5) | urlize }}", jinja.ErrSteps},
		"links in brackets":           {"{{ ('a' ~ '(' * 10 ** 5 ~ ')' * 10 ** 5) | urlize }}", jinja.ErrSteps},
		"escapes of an address":       {"{% set s = ' ' * 10 ** 6 %}{% for i in range(1000) %}{{ s | urlencode | length }}{% endfor %}", jinja.ErrMemory},
		"tags of a long text":         {"{% set s = '<x> &amp; ' * 10 ** 5 %}{% for i in range(1000) %}{{ s | striptags | length }}{% endfor %}", jinja.ErrMemory},
		"attributes of much":          {"{% set s = '<' * 10 ** 6 %}{% for i in range(1000) %}{{ {'x': s} | xmlattr | length }}{% endfor %}", jinja.ErrMemory},
		"a width from the arguments":  {"{{ '%*d' % (10 ** 9, 1) }}", jinja.ErrMemory},
		"characters of a long string": {"{% set s = 'x' * 10 ** 7 %}{% for c in s %}{% break %}{% endfor %}", jinja.ErrMemory},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, c.source, nil, jinja.Limits{Steps: 1_000_000, Output: 1 << 20, Memory: 1 << 24})
			require.ErrorIs(t, err, c.want)
			var e *jinja.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, "Limit", e.Kind)
		})
	}
}

func TestTheDefaultsStopATemplateThatNeverEnds(t *testing.T) {
	loop := "{% for i in range(100000) %}"
	_, err := render(t, loop+loop+loop+"{% break %}{% endfor %}{% break %}{% endfor %}{% endfor %}", nil, jinja.Limits{})
	require.ErrorIs(t, err, jinja.ErrMemory)
	_, err = render(t, "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", nil, jinja.Limits{})
	require.ErrorIs(t, err, jinja.ErrDepth)
}

func TestARenderSaysWhatItTook(t *testing.T) {
	out, err := render(t, "{% for i in range(100) %}{{ 'x' * 10 }}{% endfor %}", nil, jinja.Limits{})
	require.NoError(t, err)
	require.InDelta(t, 300, out.Steps, 200)
	require.InDelta(t, 2600, out.Memory, 1000)
	_, err = render(t, "{{ 'x' * 2 ** 31 }}", nil, jinja.Limits{})
	require.ErrorIs(t, err, jinja.ErrMemory, "the defaults are finite")
}

func TestLimitsAreTheCallersToSet(t *testing.T) {
	_, err := render(t, "{% for i in range(100) %}{{ i }}{% endfor %}", nil, jinja.Limits{Steps: 50})
	require.ErrorIs(t, err, jinja.ErrSteps)
	_, err = render(t, "{{ 'x' * 100 }}", nil, jinja.Limits{Output: 99})
	require.ErrorIs(t, err, jinja.ErrOutput)
	_, err = render(t, "{{ 'x' * 100 }}", nil, jinja.Limits{Memory: 99})
	require.ErrorIs(t, err, jinja.ErrMemory)
	_, err = render(t, "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", nil, jinja.Limits{Depth: 5})
	require.ErrorIs(t, err, jinja.ErrDepth)
}

func TestDeepSourcesAreSyntaxErrors(t *testing.T) {
	const deep = 100_000
	for name, source := range map[string]string{
		"parentheses": "{{ " + strings.Repeat("(", deep),
		"not":         "{{ " + strings.Repeat("not ", deep) + "1 }}",
		"minus":       "{{ " + strings.Repeat("-", deep) + "1 }}",
		"lists":       "{{ " + strings.Repeat("[", deep),
		"dicts":       "{{ " + strings.Repeat("{1:", deep),
		"blocks":      strings.Repeat("{% if 1 %}", deep),
		"sums":        "{{ 1" + strings.Repeat("+1", deep) + " }}",
		"attributes":  "{{ x" + strings.Repeat(".a", deep) + " }}",
		"calls":       "{{ x" + strings.Repeat("()", deep) + " }}",
		"filters":     "{{ x" + strings.Repeat("|trim", deep) + " }}",
		"choices":     "{{ " + strings.Repeat("1 if 1 else ", deep) + "1 }}",
		"targets":     "{% set " + strings.Repeat("(", deep) + " = 1 %}",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := jinja.Compile(source)
			var e *jinja.SyntaxError
			require.ErrorAs(t, err, &e)
		})
	}
}

func TestDataIsNeverChanged(t *testing.T) {
	data := []byte(`{"list": [3, 1, 2], "dict": {"b": 1, "a": 2}, "text": "x"}`)
	v, err := jinja.FromJSON(data)
	require.NoError(t, err)
	for _, source := range []string{
		"{{ d.list.append(1) }}", "{{ d.list.sort() }}", "{{ d.dict.update({'c': 1}) }}", "{{ d.dict.pop('a') }}", "{{ d.dict.setdefault('z', 1) }}",
		"{{ d.list | sort }}{{ d.list | reverse | list }}{{ d.dict | dictsort }}{% set x = d.dict.copy() %}{% for k, v in d.dict.items() %}{% endfor %}",
		"{% set d.list = 1 %}", "{% set d = 5 %}",
	} {
		_, err := render(t, source, jinja.Vars{"d": v}, jinja.Limits{})
		var e *jinja.Error
		if errors.As(err, &e) {
			require.NotEqual(t, "Internal", e.Kind)
		}
	}
	out, err := render(t, "{{ d | tojson }}", jinja.Vars{"d": v}, jinja.Limits{})
	require.NoError(t, err)
	require.Equal(t, string(data), out.Text)
}

func TestATemplateServesManyGoroutines(t *testing.T) {
	vars, cases := golden(t)
	for _, c := range cases {
		template, err := jinja.Compile(c.source)
		if err != nil || c.raises != "" {
			continue
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				out, err := template.Render(vars, jinja.Limits{})
				if err != nil || out.Text != c.text {
					t.Errorf("%q: %v, %q", c.source, err, out.Text)
				}
			})
		}
		wg.Wait()
	}
}

func TestErrorsSayWhereAndWhat(t *testing.T) {
	_, err := render(t, "a\n\n{{ none + 1 }}", nil, jinja.Limits{})
	require.EqualError(t, err, "jinja: render: line 3: TypeError: unsupported operand type(s) for +: 'NoneType' and 'int'")
	_, err = render(t, "{% if true %}\n{{ raise_exception('no system messages, please') }}\n{% endif %}", nil, jinja.Limits{})
	var raised *jinja.RaiseError
	require.ErrorAs(t, err, &raised)
	require.Equal(t, "no system messages, please", raised.Msg)
	require.Equal(t, 2, raised.Line)
	_, err = jinja.Compile("a\n{% if x %}\n{{ y }")
	require.EqualError(t, err, "jinja: compile: line 3: unexpected '}'")
	cause := errors.New("no clock")
	_, err = render(t, "{{ now() }}", jinja.Vars{"now": jinja.Func(func([]jinja.Value) (jinja.Value, error) { return nil, cause })}, jinja.Limits{})
	require.ErrorIs(t, err, cause)
}

func TestSpansAreWhereGenerationBlocksStand(t *testing.T) {
	out, err := render(t, "user: hi\n{% generation %}añb{% endgeneration %}\n{% generation %}c{% endgeneration %}.", nil, jinja.Limits{})
	require.NoError(t, err)
	require.Len(t, out.Spans, 2)
	require.Equal(t, "añb", out.Text[out.Spans[0].Start:out.Spans[0].End])
	require.Equal(t, "c", out.Text[out.Spans[1].Start:out.Spans[1].End])
}
