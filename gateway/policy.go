package gateway

import (
	"cmp"
	"math"
	"slices"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/tokenizer/prompt"
)

// Policy is what a session says for its turns, and a run for its sessions.
type Policy struct {
	Model  *event.ModelPolicy
	Limits *event.Limits
}

// ParsePolicy reads a policy, a JSON object all members of which are optional:
//
//	{"model":"...","buffered":false,"history":"keep","sampling":{"default":{},"override":{}},
//	 "limits":{"turns":0,"tokens":0,"wall_seconds":0,"idle_seconds":0}}
//
// Empty is as good as {}. The error is of kind Invalid and names the member.
func ParsePolicy(raw []byte) (Policy, error) {
	p := Policy{&event.ModelPolicy{}, &event.Limits{}}
	if len(raw) == 0 {
		return p, nil
	}
	return p, object("", raw, func(k string, v []byte) (err error) {
		switch k {
		case "model":
			if rawjson.KindOf(v) != rawjson.String {
				return Invalidf(k, "%s must be a string", k)
			}
			p.Model.Model = rawjson.Text(v)
		case "buffered":
			if rawjson.KindOf(v) != rawjson.Bool {
				return Invalidf(k, "%s must be true or false", k)
			}
			p.Model.Buffered = string(v) == "true"
		case "history":
			known := []prompt.Policy{prompt.Keep, prompt.Vendor}
			if rawjson.KindOf(v) != rawjson.String || !slices.Contains(known, prompt.Policy(rawjson.Text(v))) {
				return Invalidf(k, "%s is none of %q", k, known)
			}
			p.Model.History = rawjson.Text(v)
		case "sampling":
			return object(k, v, func(layer string, v []byte) error {
				switch name := k + "." + layer; layer {
				case "default":
					p.Model.SamplingDefault, err = samplingObject(name, v)
				case "override":
					p.Model.SamplingOverride, err = samplingObject(name, v)
				default:
					err = Invalidf(k, "unknown field %q in %s", layer, k)
				}
				return err
			})
		case "limits":
			return object(k, v, func(limit string, v []byte) error {
				to := map[string]*int64{
					"turns": &p.Limits.Turns, "tokens": &p.Limits.Tokens,
					"wall_seconds": &p.Limits.WallSeconds, "idle_seconds": &p.Limits.IdleSeconds,
				}[limit]
				if to == nil {
					return Invalidf(k, "unknown field %q in %s", limit, k)
				}
				n, err := integer(k+"."+limit, v, 0, math.MaxInt32)
				if err == nil {
					*to = *n
				}
				return err
			})
		default:
			return Invalidf(k, "unknown field %q", k)
		}
		return nil
	})
}

// object calls fn for the members of an object that are not null.
func object(name string, raw []byte, fn func(key string, value []byte) error) error {
	switch rawjson.KindOf(raw) {
	case rawjson.Object:
	case rawjson.Null:
		return nil
	default:
		return Invalidf(name, "%s is %s; it must be an object", name, rawjson.KindOf(raw))
	}
	for k, v := range rawjson.Members(raw) {
		if rawjson.KindOf(v) == rawjson.Null {
			continue
		}
		if err := fn(k, v); err != nil {
			return err
		}
	}
	return nil
}

func samplingObject(name string, raw []byte) ([]byte, error) {
	if err := object(name, raw, func(string, []byte) error { return nil }); err != nil {
		return nil, err
	}
	if _, err := ParseSampling(raw); err != nil {
		return nil, Invalidf(name, "%s: %s", name, err)
	}
	return raw, nil
}

// with lays another policy over p: what it says counts, and what it does not
// say is p's. Sampling is laid over key by key. Buffered is so if either says
// it.
func (p Policy) with(over Policy) Policy {
	out := Policy{
		Model: &event.ModelPolicy{
			Model:    cmp.Or(over.Model.GetModel(), p.Model.GetModel()),
			History:  cmp.Or(over.Model.GetHistory(), p.Model.GetHistory()),
			Buffered: p.Model.GetBuffered() || over.Model.GetBuffered(),
		},
		Limits: &event.Limits{
			Turns:       cmp.Or(over.Limits.GetTurns(), p.Limits.GetTurns()),
			Tokens:      cmp.Or(over.Limits.GetTokens(), p.Limits.GetTokens()),
			WallSeconds: cmp.Or(over.Limits.GetWallSeconds(), p.Limits.GetWallSeconds()),
			IdleSeconds: cmp.Or(over.Limits.GetIdleSeconds(), p.Limits.GetIdleSeconds()),
		},
	}
	out.Model.SamplingDefault = layered(p.Model.GetSamplingDefault(), over.Model.GetSamplingDefault())
	out.Model.SamplingOverride = layered(p.Model.GetSamplingOverride(), over.Model.GetSamplingOverride())
	return out
}

// layered is mergeSampling of two, of which none says nothing.
func layered(under, over []byte) []byte {
	if len(under) == 0 {
		return over
	}
	return mergeSampling(under, over)
}
