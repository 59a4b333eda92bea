package jinja_test

import (
	"errors"
	"fmt"

	"turnlog.dev/tokenizer/jinja"
)

// A template is compiled once and rendered with values in the order that their
// JSON had.
func Example() {
	template, err := jinja.Compile(`{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}
{% endfor %}{{ tool | tojson }}`)
	if err != nil {
		panic(err) // a *jinja.SyntaxError, with the line
	}
	messages, err := jinja.FromJSON([]byte(`[{"role": "user", "content": " hi "}, {"role": "assistant", "content": "Hello!"}]`))
	if err != nil {
		panic(err)
	}
	tool, err := jinja.FromJSON([]byte(`{"name": "ls", "limit": 1.0, "all": true}`))
	if err != nil {
		panic(err)
	}
	out, err := template.Render(jinja.Vars{"messages": messages, "tool": tool}, jinja.Limits{})
	if err != nil {
		panic(err) // a *jinja.Error or a *jinja.RaiseError
	}
	fmt.Println(out.Text)
	// Output:
	// <user>hi
	// <assistant>Hello!
	// {"name": "ls", "limit": 1.0, "all": true}
}

// Templates come from strangers: what would take too much is stopped.
func ExampleLimits() {
	template, err := jinja.Compile(`{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}`)
	if err != nil {
		panic(err)
	}
	_, err = template.Render(nil, jinja.Limits{Steps: 1_000_000})
	fmt.Println(errors.Is(err, jinja.ErrSteps))
	// Output: true
}
