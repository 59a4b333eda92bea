package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/jinja"
)

// now is the time that truth.py gives to strftime_now.
var now = time.Date(2025, time.December, 1, 0, 0, 0, 0, time.UTC)

// compareTemplates renders every template with every conversation and compares
// text, generation spans, and whether it raises, with what transformers did.
func compareTemplates(args []string) (name string, passed, failed int, err error) {
	flags := flag.NewFlagSet("templates", flag.ExitOnError)
	flags.StringVar(&name, "name", "templates", "what to call it")
	dir := flags.String("dir", "", "folder of *.jinja")
	casesFile := flags.String("cases", "", "conversations")
	truthFile := flags.String("truth", "", "what transformers renders")
	if err := flags.Parse(args); err != nil {
		return name, 0, 0, err
	}
	cases, err := readJSON(*casesFile)
	if err != nil {
		return name, 0, 0, err
	}
	truth, err := readJSON(*truthFile)
	if err != nil {
		return name, 0, 0, err
	}
	files, err := filepath.Glob(filepath.Join(*dir, "*.jinja"))
	if err != nil {
		return name, 0, 0, err
	}
	slices.Sort(files)
	special := chat.SpecialTokens{}
	for _, key := range object(cases, "special").Keys() {
		special[key] = get(object(cases, "special"), key).(string)
	}
	for _, file := range files {
		template := strings.TrimSuffix(filepath.Base(file), ".jinja")
		want, ok := truth.Get(template)
		if !ok {
			return name, 0, 0, fmt.Errorf("%s has nothing on %s", *truthFile, template)
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return name, 0, 0, err
		}
		p, f := compareTemplate(template, string(source), special, object(cases, "cases"), want.(*jinja.Dict), &failed)
		passed += p
		failed += f
	}
	return name, passed, failed, nil
}

func compareTemplate(name, source string, special chat.SpecialTokens, cases, truth *jinja.Dict, before *int) (passed, failed int) {
	report := func(id, format string, args ...any) {
		if failed++; *before+failed <= shown {
			fmt.Printf("  %s %s: %s\n", name, id, fmt.Sprintf(format, args...))
		}
	}
	t, compileErr := chat.New(source, special)
	if want, ok := truth.Get("*"); ok { // does not compile in Python
		if compileErr != nil {
			passed++
		} else if _, err := render(t, object(cases, cases.Keys()[0])); err == nil {
			// A filter that does not exist fails when it is reached.
			report("*", "should not compile: %v", want)
		} else {
			passed++
		}
		return passed, failed
	}
	for _, id := range cases.Keys() {
		err := compileErr
		var got chat.Output
		if err == nil {
			got, err = render(t, object(cases, id))
		}
		want := object(truth, id)
		if e := (*jinja.Error)(nil); errors.As(err, &e) && e.Kind == "Internal" {
			report(id, "%v", err)
			continue
		}
		text, completes := want.Get("ok")
		switch {
		case completes && err != nil:
			report(id, "%v", err)
		case completes && got.Text != text.(string):
			report(id, "%s", firstDifference(text.(string), got.Text))
		case completes && !sameSpans(want, got):
			report(id, "generation spans differ: %v", got.Spans)
		case !completes && err == nil:
			report(id, "should raise %v", get(want, "err"))
		default:
			passed++
		}
	}
	return passed, failed
}

func render(t *chat.Template, c *jinja.Dict) (chat.Output, error) {
	messages, ok := get(c, "messages").(*jinja.List)
	if !ok {
		return chat.Output{}, errors.New("no messages")
	}
	return t.RenderValues(messages, get(c, "tools"), chat.Options{
		AddGenerationPrompt:  get(c, "add_generation_prompt") == true,
		ContinueFinalMessage: get(c, "continue_final_message") == true,
		Kwargs:               []byte(get(c, "kwargs_json").(string)),
		Now:                  now,
	})
}

// sameSpans compares generation spans, which Python counts in characters.
func sameSpans(want *jinja.Dict, got chat.Output) bool {
	v, ok := want.Get("spans")
	if !ok {
		return true
	}
	list := v.(*jinja.List)
	if list.Len() != len(got.Spans) {
		return false
	}
	for i, s := range got.Spans {
		pair := list.At(i).(*jinja.List)
		start, end := utf8.RuneCountInString(got.Text[:s.Start]), utf8.RuneCountInString(got.Text[:min(s.End, len(got.Text))])
		if pair.At(0) != int64(start) || s.End <= len(got.Text) && pair.At(1) != int64(end) {
			return false
		}
	}
	return true
}

func firstDifference(want, got string) string {
	i := 0
	for i < len(want) && i < len(got) && want[i] == got[i] {
		i++
	}
	around := func(s string) string { return s[max(0, i-25):min(len(s), i+30)] }
	return fmt.Sprintf("want …%q, got …%q", around(want), around(got))
}

func readJSON(file string) (*jinja.Dict, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	v, err := jinja.FromJSON(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return v.(*jinja.Dict), nil
}

func get(d *jinja.Dict, key string) jinja.Value {
	v, _ := d.Get(key)
	return v
}

func object(d *jinja.Dict, key string) *jinja.Dict { return get(d, key).(*jinja.Dict) }
