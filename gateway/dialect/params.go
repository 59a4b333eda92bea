package dialect

import (
	"slices"

	"turnlog.dev/schema/rawjson"
)

// Params collects sampling parameters under the gateway's names.
type Params struct{ sets []rawjson.Set }

// Set gives a parameter its value, as the client spelled it. Null says nothing;
// of a name that is set twice the later value counts.
func (p *Params) Set(name string, raw []byte) {
	if IsNull(raw) {
		return
	}
	same := func(s rawjson.Set) bool { return s.Key == name }
	p.sets = append(slices.DeleteFunc(p.sets, same), rawjson.Set{Key: name, Value: raw})
}

// Has reports whether a parameter has a value, and which.
func (p *Params) Has(name string) (raw []byte, ok bool) {
	for _, s := range p.sets {
		if s.Key == name {
			return s.Value, true
		}
	}
	return nil, false
}

// Object returns the parameters as the JSON object that gateway.ParseSampling
// reads.
func (p *Params) Object() []byte { return rawjson.Splice(nil, []byte("{}"), p.sets...) }
