package wire

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/rawjson"
)

// Served is a model that a server lists.
type Served struct {
	Name string
	// Base is the model that an adapter belongs to; empty for a model itself.
	Base string
	// ContextLength in tokens; 0 is unknown.
	ContextLength int
}

// Served asks a server which of its models is ours: Upstream, which it has to
// list, otherwise the one that is called what the gateway calls it, as an adapter
// may be, otherwise its first.
func (c *Client) Served(ctx context.Context) (Served, error) {
	all, err := c.Models(ctx)
	if err != nil {
		return Served{}, err
	}
	if len(all) == 0 {
		return Served{}, &engine.Error{Class: engine.Refused, Message: "the engine lists no model at /v1/models; is it the kind of server that the model's engine names, and has it loaded one?"}
	}
	for _, name := range []string{c.upstream, c.model} {
		if name == "" {
			continue
		}
		if i := slices.IndexFunc(all, func(s Served) bool { return s.Name == name }); i >= 0 {
			return all[i], nil
		}
		if name == c.upstream {
			return Served{}, NotServed(name, all)
		}
	}
	return all[0], nil
}

// maxNamed is how many models an error names: providers list hundreds.
const maxNamed = 20

// NotServed is the error of a server that does not serve a model by this name.
func NotServed(name string, all []Served) *engine.Error {
	var names []string
	for _, s := range all[:min(len(all), maxNamed)] {
		names = append(names, s.Name)
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d others", more))
	}
	return &engine.Error{Class: engine.Refused, Message: fmt.Sprintf(
		"the engine serves %s, not the model %q; set upstream_model of the model to a name that it serves", strings.Join(names, ", "), name)}
}

// Models asks a server which models it serves: a list as OpenAI writes it, with
// what vLLM, sglang and llama.cpp add: max_model_len, the parent of an adapter, and
// other names.
func (c *Client) Models(ctx context.Context) (all []Served, err error) {
	answer, err := c.Call(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return nil, err
	}
	list, _ := rawjson.Get(answer, "data")
	for m := range rawjson.Elements(list) {
		var s Served
		var names []string
		for k, v := range rawjson.Members(m) {
			switch k {
			case "id":
				s.Name = rawjson.Text(v)
			case "parent":
				s.Base = rawjson.Text(v)
			case "max_model_len":
				s.ContextLength, _ = Int(v)
			case "aliases":
				for alias := range rawjson.Elements(v) {
					names = append(names, rawjson.Text(alias))
				}
			}
		}
		all = append(all, s)
		for _, s.Name = range names {
			all = append(all, s)
		}
	}
	return all, nil
}
