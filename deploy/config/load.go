package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"reflect"
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
	known := map[string]leaf{}
	for _, l := range leaves(reflect.ValueOf(&c).Elem(), "") {
		known[l.env()] = l
	}
	for _, kv := range src.Env {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, EnvPrefix) || slices.Contains(otherEnv, name) {
			continue
		}
		l, ok := known[name]
		if !ok {
			faults = append(faults, fmt.Errorf("config: %s: no such key", name))
			continue
		}
		if err := l.set(value); err != nil {
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
		flags.String(l.flag(), "", l.help)
		flags.Lookup(l.flag()).DefValue = l.text()
	}
}

// YAML returns the configuration as a file that Load reads; a password in an
// address is not shown.
func (c Config) YAML() ([]byte, error) {
	if u, err := url.Parse(c.Log.URL); err == nil && c.Log.URL != "" {
		c.Log.URL = u.Redacted()
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
		return err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("more than one document")
	}
	return nil
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
	if d, ok := l.value.Addr().Interface().(*time.Duration); ok {
		parsed, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is no duration, such as 30s or 5m", text)
		}
		*d = parsed
		return nil
	}
	fresh := reflect.New(l.value.Type())
	if err := strict([]byte(text), fresh.Interface()); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	l.value.Set(fresh.Elem())
	return nil
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
