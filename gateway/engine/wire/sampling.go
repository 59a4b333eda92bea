package wire

import "turnlog.dev/gateway/engine"

// Sampling adds the parameters that sglang and vLLM spell alike. noTopK is what
// stands for all of the vocabulary.
func Sampling(o *Object, s *engine.Sampling, noTopK int64) {
	o.Float("temperature", s.Temperature)
	o.Float("top_p", s.TopP)
	if s.TopK != nil {
		k := int64(*s.TopK)
		if k <= 0 {
			k = noTopK
		}
		o.Int("top_k", k)
	}
	o.Float("min_p", s.MinP)
	o.Float("frequency_penalty", s.FrequencyPenalty)
	o.Float("presence_penalty", s.PresencePenalty)
	o.Float("repetition_penalty", s.RepetitionPenalty)
	o.Texts("stop", s.Stop)
	if len(s.StopTokens) > 0 {
		o.IDs("stop_token_ids", s.StopTokens)
	}
	LogitBias(o, s.LogitBias)
}

// MaxTokens adds the length of an answer. Without one it is null, which is up to
// the end of the context; left out it would be a small number of the server's.
func MaxTokens(o *Object, key string, s *engine.Sampling) {
	if s.MaxTokens > 0 {
		o.Int(key, int64(s.MaxTokens))
	} else {
		o.Raw(key, []byte("null"))
	}
}
