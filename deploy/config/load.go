package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// EnvPrefix begins the name of every environment variable.
const EnvPrefix = "TURNLOG_"

// Source is where a configuration is read from.
type Source struct {
	// File is the YAML file; empty is none.
	File string
	// Env is the environment, as os.Environ returns it.
	Env []string
	// Flags are those that AddFlags has added to, parsed.
	Flags *pflag.FlagSet
}

// Load reads a configuration over the defaults. The error lists all faults of
// reading; Validate finds those of what was read.
func Load(src Source) (Config, error) {
	c := Default()
	if src.File != "" {
		raw, err := os.ReadFile(src.File)
		if err != nil {
			return c, fmt.Errorf("config: %w", err)
		}
		if err := strict(raw, &c); err != nil {
			return c, fmt.Errorf("config: %s: %w", src.File, err)
		}
	}
	var faults []error
	known := leaves(reflect.ValueOf(&c).Elem(), "")
	for _, kv := range src.Env {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, EnvPrefix) || slices.Contains(otherEnv, name) {
			continue
		}
		i := slices.IndexFunc(known, func(l leaf) bool { return l.env() == name })
		if i < 0 {
			faults = append(faults, fmt.Errorf("config: %s: no such key; turnlog up --print-config shows them all", name))
			continue
		}
		if err := known[i].set(value); err != nil {
			faults = append(faults, fmt.Errorf("config: %s: %w", name, err))
		}
	}
	if src.Flags != nil {
		for _, l := range known {
			if f := src.Flags.Lookup(l.flag()); f != nil && f.Changed {
				if err := l.set(f.Value.String()); err != nil {
					faults = append(faults, fmt.Errorf("config: --%s: %w", f.Name, err))
				}
			}
		}
	}
	return c, errors.Join(faults...)
}

// otherEnv are variables of ours that are no configuration keys.
var otherEnv = []string{"TURNLOG_CONFIG", "TURNLOG_CACHE", "TURNLOG_FAULT"}

// AddFlags adds a flag for every key.
func AddFlags(flags *pflag.FlagSet) {
	c := Default()
	for _, l := range leaves(reflect.ValueOf(&c).Elem(), "") {
		f := flags.VarPF(&said{kind: l.kind()}, l.flag(), "", l.help)
		f.DefValue = l.text()
		if f.Value.Type() == "bool" {
			f.NoOptDefVal = "true" // --key is as good as --key=true
		}
	}
}

// said is the text of a flag. Load reads it, with the names of keys at hand.
type said struct{ text, kind string }

func (s *said) String() string { return s.text }

func (s *said) Set(text string) error {
	s.text = text
	return nil
}

func (s *said) Type() string { return s.kind }

// YAML returns the configuration as a file that Load reads; a password in an
// address is not shown.
func (c Config) YAML() ([]byte, error) {
	c.Log.URL = c.Log.Servers()
	c.Models = slices.Clone(c.Models)
	for i, m := range c.Models {
		c.Models[i].Backends = slices.Clone(m.Backends)
		for j, address := range m.Backends {
			c.Models[i].Backends[j] = shown(address)
		}
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(c); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return b.Bytes(), nil
}

// strict decodes YAML and refuses unknown keys. An empty text changes nothing.
func strict(raw []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return plain(err)
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("more than one document")
	}
	return nil
}

var (
	unknownField = regexp.MustCompile(`^(line \d+): field (\S+) not found in type .*$`)
	wrongType    = regexp.MustCompile("(?s)^(line \\d+): cannot unmarshal !!\\w+ (?:`(.*)` )?into (\\S+)$")
)

// plain says what the YAML decoder found, without the names of Go's types.
func plain(err error) error {
	var found *yaml.TypeError
	if !errors.As(err, &found) {
		return err
	}
	var faults []error
	for _, text := range found.Errors {
		if m := unknownField.FindStringSubmatch(text); m != nil {
			text = fmt.Sprintf("%s: no such key: %s", m[1], m[2])
		} else if m := wrongType.FindStringSubmatch(text); m != nil {
			text = m[1] + ": this"
			if m[2] != "" {
				text = fmt.Sprintf("%s: %q", m[1], m[2])
			}
			text += " is not " + described(m[3])
		}
		faults = append(faults, errors.New(text))
	}
	return errors.Join(faults...)
}

// described is a type as an operator knows it.
func described(goType string) string {
	switch strings.TrimPrefix(goType, "*") {
	case "time.Duration":
		return "a duration, such as 30s or 5m"
	case "int", "int64":
		return "a whole number"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	case "string":
		return "a text"
	}
	if strings.HasPrefix(goType, "[]") {
		return "a list"
	}
	return "a group of keys"
}

// leaf is one key of the configuration.
type leaf struct {
	key   string // dotted
	help  string
	value reflect.Value
}

func (l leaf) env() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(l.key, ".", "_"))
}

func (l leaf) flag() string { return strings.ReplaceAll(l.key, "_", "-") }

func (l leaf) set(text string) error {
	if l.value.Kind() == reflect.String {
		l.value.SetString(text)
		return nil
	}
	if list, ok := l.value.Addr().Interface().(*[]string); ok && !strings.HasPrefix(strings.TrimSpace(text), "[") {
		// A,B is as good as [A, B].
		*list = strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
		return nil
	}
	fresh := reflect.New(l.value.Type())
	if err := strict([]byte(text), fresh.Interface()); err != nil {
		if l.value.Kind() != reflect.Slice { // one value, so that its line says nothing
			err = fmt.Errorf("%q is not %s", text, described(l.value.Type().String()))
		}
		return err
	}
	l.value.Set(fresh.Elem())
	return nil
}

// kind is what the value is called in help.
func (l leaf) kind() string {
	switch v := l.value.Addr().Interface().(type) {
	case *time.Duration:
		return "duration"
	case *[]string:
		return "list"
	default:
		t := reflect.TypeOf(v).Elem()
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch t.Kind() {
		case reflect.Bool:
			return "bool"
		case reflect.Int, reflect.Int64:
			return "int"
		case reflect.Float64:
			return "float"
		case reflect.Slice:
			return "yaml"
		}
		return "string"
	}
}

// text is the value as help shows it.
func (l leaf) text() string {
	if l.key == "models" {
		return "the demo model"
	}
	if list, ok := l.value.Interface().([]string); ok {
		return strings.Join(list, ",")
	}
	if l.value.Kind() == reflect.Pointer {
		if l.value.IsNil() {
			return ""
		}
		return fmt.Sprint(l.value.Elem().Interface())
	}
	return fmt.Sprint(l.value.Interface())
}

func leaves(v reflect.Value, prefix string) []leaf {
	var out []leaf
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		key := prefix + name
		if v.Field(i).Kind() == reflect.Struct {
			out = append(out, leaves(v.Field(i), key+".")...)
			continue
		}
		out = append(out, leaf{key, f.Tag.Get("help"), v.Field(i)})
	}
	return out
}
