package jinja_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/tokenizer/jinja"
)

// TestBuffersAndScopesAreUsedAgain: what a render leaves behind is never seen
// by the next one, whatever the first one kept.
func TestBuffersAndScopesAreUsedAgain(t *testing.T) {
	for source, want := range map[string]string{
		// Macros keep the scope of the loop that made them, and see its last turn.
		`{% set ns = namespace(f=none) %}{% for x in [1, 2] %}{% macro f() %}{{ x }}{% endmacro %}{% set ns.f = f %}{% endfor %}{% for y in [7, 8] %}{{ ns.f() }}{{ y }};{% endfor %}`: "27;28;",
		// A recursive loop may be called when the loop around it is done.
		`{% set ns = namespace(l=none) %}{% for a in ['A'] %}{% for x in [1] recursive %}{{ a }}{{ x }}{% set ns.l = loop %}{% endfor %}{% endfor %}{% for b in ['B'] %}{{ ns.l([2]) }}{% endfor %}`: "A1A2",
		// A caller keeps the scope around the call.
		`{% macro m() %}{% for z in [1, 2] %}{{ caller(z) }}{% endfor %}{% endmacro %}{% for x in 'ab' %}{% call(z) m() %}{{ x }}{{ z }}{% endcall %}{% endfor %}`: "a1a2b1b2",
		// Macros within macros, and text built while other text is.
		`{% macro a(x) %}<{{ x }}>{% endmacro %}{% macro b(x) %}{{ a(x ~ a(x)) }}{% endmacro %}{{ b(1) ~ b(2) | upper }}{{ b(3) }}`: "<1<1>><2<2>><3<3>>",
		// Variables of one iteration are gone in the next.
		`{% for x in [1, 2] %}{{ y is defined }}{% set y = x %}{% endfor %}{{ y is defined }}`: "FalseFalseFalse",
		// A literal is one list for all iterations, and stays what it is.
		`{% for x in [1, 2] %}{% set l = [1, 2] %}{{ (l + [x])[2] }}{{ l | length }}{% endfor %}`: "1222",
		// Loops over entries know their neighbours.
		`{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{{ loop.nextitem }}{{ loop.last }}{{ loop.length }}{% endfor %}`:   "a1('b', 2)False2b2True2",
		`{% set g = {'a': 1} | items %}{% for k, v in g %}{{ k }}{% endfor %}{% for k, v in g %}{{ k }}{% else %}empty{% endfor %}`: "aempty",
		// Parts of a split, of every type.
		`{{ 'a-b-c'.split('-')[0] }}{{ 'a-b-c'.split('-')[-1] }}{{ 'abc'.split('-')[-1] }}{{ ''.split('-')[0] }}|{{ ('<-&' | safe).split('-')[-1] + '<' }}`: "acabc|&&lt;",
	} {
		template, err := jinja.Compile(source)
		require.NoError(t, err, source)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 50 {
					out, err := template.Render(nil, jinja.Limits{})
					if err != nil || out.Text != want {
						t.Errorf("%s: %q, %v", source, out.Text, err)
						return
					}
				}
			})
		}
		all.Wait()
	}
}

func TestSplitOfWhatHasNoSplit(t *testing.T) {
	for _, source := range []string{`{{ x.split('a')[0] }}`, `{{ 1.5.split('a')[0] }}`, `{{ none.split('a')[-1] }}`, `{{ [].split('a')[-1] }}`} {
		template, err := jinja.Compile(source)
		require.NoError(t, err)
		_, err = template.Render(nil, jinja.Limits{})
		require.Error(t, err, source)
	}
}

// TestAMessageTakesFewAllocations holds that a render makes no garbage that
// grows with its output: the text is built in a buffer that stays.
func TestAMessageTakesFewAllocations(t *testing.T) {
	template, err := jinja.Compile(`
{%- macro show(text) %}{{ text | trim }}{% endmacro %}
{%- for m in messages %}
{%- if m.role == 'assistant' and not loop.last and m['content'] is string %}
{{- '<|' + m.role + '|>\n' ~ show(m.content) ~ m.content.split('</think>')[-1] }}
{%- else %}{{ show(m.content) }}{{ m | tojson }}{% endif %}
{%- endfor %}`)
	require.NoError(t, err)
	messages := make([]jinja.Value, 200)
	for i := range messages {
		d := jinja.NewDict(2)
		d.Set("role", []string{"user", "assistant"}[i%2])
		d.Set("content", strings.Repeat("text ", 50)+"</think>!")
		messages[i] = d
	}
	vars := jinja.Vars{"messages": jinja.NewList(messages...)}
	allocations := testing.AllocsPerRun(10, func() {
		if _, err := template.Render(vars, jinja.Limits{}); err != nil {
			t.Fatal(err)
		}
	})
	require.Less(t, allocations, 7.5*100) // an assistant's message takes seven: text, made thrice, is a value each time
}
