package gateway

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/rawjson"
)

// mergeSampling lays JSON objects of sampling parameters over each other: a
// later one wins, key by key. Empty ones are skipped.
func mergeSampling(layers ...[]byte) []byte {
	out := []byte("{}")
	for _, layer := range layers {
		var sets []rawjson.Set
		for k, v := range rawjson.Members(layer) {
			if rawjson.KindOf(v) != rawjson.Null {
				sets = append(sets, rawjson.Set{Key: k, Value: v})
			}
		}
		if len(sets) > 0 {
			out = rawjson.Splice(nil, out, sets...)
		}
	}
	return out
}

// ParseSampling reads a JSON object of sampling parameters under the names
// that engines share: max_tokens, temperature, top_p, top_k, min_p,
// frequency_penalty, presence_penalty, repetition_penalty, seed, stop,
// stop_token_ids, logit_bias. Null is as good as absent. The error is of kind Invalid and
// names the parameter.
func ParseSampling(raw []byte) (s engine.Sampling, err error) {
	for k, v := range rawjson.Members(raw) {
		if rawjson.KindOf(v) == rawjson.Null {
			continue
		}
		switch k {
		case "max_tokens":
			var n *int64
			if n, err = integer(k, v, 1, math.MaxInt32); n != nil {
				s.MaxTokens = int(*n)
			}
		case "temperature":
			s.Temperature, err = float(k, v, 0, 100)
		case "top_p":
			s.TopP, err = float(k, v, 0, 1)
		case "min_p":
			s.MinP, err = float(k, v, 0, 1)
		case "frequency_penalty":
			s.FrequencyPenalty, err = float(k, v, -2, 2)
		case "presence_penalty":
			s.PresencePenalty, err = float(k, v, -2, 2)
		case "repetition_penalty":
			s.RepetitionPenalty, err = float(k, v, 0, 10)
		case "top_k":
			var n *int64
			if n, err = integer(k, v, -1, math.MaxInt32); n != nil {
				top := int(*n)
				s.TopK = &top
			}
		case "seed":
			s.Seed, err = integer(k, v, math.MinInt64, math.MaxInt64)
		case "stop":
			s.Stop, err = texts(k, v)
		case "stop_token_ids":
			for e := range rawjson.Elements(v) {
				var n *int64
				if n, err = integer(k, e, 0, math.MaxUint32); err != nil {
					break
				}
				s.StopTokens = append(s.StopTokens, uint32(*n))
			}
		case "logit_bias":
			s.LogitBias, err = biases(k, v)
		default:
			err = Invalidf(k, "%s is not a sampling parameter", k)
		}
		if err != nil {
			return engine.Sampling{}, err
		}
	}
	return s, nil
}

func float(name string, raw []byte, low, high float64) (*float64, error) {
	f, err := strconv.ParseFloat(string(bytes.TrimSpace(raw)), 64)
	if err != nil || rawjson.KindOf(raw) != rawjson.Number || f < low || f > high {
		return nil, Invalidf(name, "%s must be a number from %g to %g", name, low, high)
	}
	return &f, nil
}

func integer(name string, raw []byte, low, high int64) (*int64, error) {
	text := string(bytes.TrimSpace(raw))
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		// 4096.0 and 1e3 are integers as JSON has them.
		f, errFloat := strconv.ParseFloat(text, 64)
		if errFloat != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			return nil, Invalidf(name, "%s must be an integer", name)
		}
		n = int64(f)
	}
	if rawjson.KindOf(raw) != rawjson.Number || n < low || n > high {
		return nil, Invalidf(name, "%s must be an integer from %d to %d", name, low, high)
	}
	return &n, nil
}

// biases reads an object of numbers by token id.
func biases(name string, raw []byte) (list []engine.Bias, err error) {
	if rawjson.KindOf(raw) != rawjson.Object {
		return nil, Invalidf(name, "%s must be an object of numbers by token id", name)
	}
	for k, v := range rawjson.Members(raw) {
		id, err := strconv.ParseUint(k, 10, 32)
		if err != nil {
			return nil, Invalidf(name, "%s: %q is no token id", name, k)
		}
		value, err := float(name, v, -100, 100)
		if err != nil {
			return nil, err
		}
		list = append(list, engine.Bias{ID: uint32(id), Value: *value})
	}
	slices.SortFunc(list, func(a, b engine.Bias) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

func texts(name string, raw []byte) (list []string, err error) {
	if rawjson.KindOf(raw) == rawjson.String {
		return []string{rawjson.Text(raw)}, nil
	}
	if rawjson.KindOf(raw) != rawjson.Array {
		return nil, Invalidf(name, "%s must be a string or an array of strings", name)
	}
	for e := range rawjson.Elements(raw) {
		if rawjson.KindOf(e) != rawjson.String {
			return nil, Invalidf(name, "%s must be a string or an array of strings", name)
		}
		list = append(list, rawjson.Text(e))
	}
	return list, nil
}
