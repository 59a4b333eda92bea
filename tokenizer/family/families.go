package family

import "turnlog.dev/tokenizer/parse"

// The families. README.md has the table of what each can do.
var (
	// Generic is a format of which nothing is known but its template: turns are
	// joined as the template shows, replies are read by the format that reads
	// what the template writes for a call.
	Generic = Family{Name: "generic", Format: parse.Plain}

	// ChatML is Qwen 2.5, Hermes and what was trained like them: no thinking.
	ChatML = Family{
		Name: "chatml", Format: withoutThinking(parse.Hermes), Stops: []string{"<|im_end|>"},
		recognise: func(e Evidence) int {
			return score(2, e.has("<|im_end|>"), e.says("<|im_start|>"), !e.says("<|im_middle|>"),
				e.says("<tool_call>") || !e.says("tool"))
		},
	}

	// Qwen3 is Qwen 3: hybrid, Instruct-2507, Thinking-2507, Next. What the
	// generation prompt opens tells them apart.
	Qwen3 = Family{
		Name: "qwen3", Format: parse.Hermes, Stops: []string{"<|im_end|>"}, Thinking: "enable_thinking",
		recognise: func(e Evidence) int {
			return score(4, e.has("<|im_end|>"), e.has("<tool_call>"), e.has("<think>"), e.says("<|im_start|>", `"name"`)) +
				score(1, e.ModelType == "qwen3" || e.ModelType == "qwen3_moe" || e.ModelType == "qwen3_next")
		},
	}

	// QwenXML is Qwen3-Coder, Qwen 3.5 and 3.6: calls in tags.
	QwenXML = Family{
		Name: "qwen_xml", Format: parse.QwenXML, Stops: []string{"<|im_end|>"}, Thinking: "enable_thinking",
		Keep: []byte(`{"preserve_thinking":true}`),
		recognise: func(e Evidence) int {
			return score(6, e.has("<|im_end|>"), e.says("<|im_start|>", "<function=", "<parameter="))
		},
	}

	// Nemotron3 is NVIDIA Nemotron 3.
	Nemotron3 = Family{
		Name: "nemotron3", Format: parse.QwenXML, Stops: []string{"<|im_end|>"}, Thinking: "enable_thinking",
		Keep: []byte(`{"truncate_history_thinking":false}`),
		recognise: func(e Evidence) int {
			return score(8, e.says("truncate_history_thinking", "<function="))
		},
	}

	// GLM is GLM 4.5, 4.6, 4.7 and 5. A turn ends with the opener of the next
	// message.
	GLM = Family{
		Name: "glm", Format: parse.GLM, Stops: []string{"<|user|>", "<|observation|>", "<|endoftext|>"},
		Trim: []string{"<|user|>", "<|observation|>", "<|endoftext|>"},
		Keep: []byte(`{"clear_thinking":false}`), Thinking: "enable_thinking",
		recognise: func(e Evidence) int { return score(6, e.has("<|observation|>"), e.says("<|assistant|>")) },
	}

	// GPTOSS is gpt-oss: harmony. A turn ends with <|return|>, which the
	// history writes as <|end|>.
	GPTOSS = Family{
		Name: "gpt_oss", Format: parse.Harmony, Stops: []string{"<|return|>", "<|call|>"},
		Ends: []string{"<|call|>"}, Trim: []string{"<|return|>"},
		recognise: func(e Evidence) int { return score(6, e.has("<|channel|>"), e.has("<|return|>")) },
	}

	// DeepSeekV3 is DeepSeek V3 and R1.
	DeepSeekV3 = Family{
		Name: "deepseek_v3", Format: parse.DeepSeekV3, Stops: []string{"<｜end▁of▁sentence｜>"},
		recognise: func(e Evidence) int {
			return score(4, e.has("<｜Assistant｜>"), e.has("<｜end▁of▁sentence｜>"))
		},
	}

	// DeepSeekV31 is DeepSeek V3.1.
	DeepSeekV31 = Family{
		Name: "deepseek_v31", Format: parse.DeepSeekV31, Stops: []string{"<｜end▁of▁sentence｜>"}, Thinking: "thinking",
		recognise: func(e Evidence) int {
			return score(5, e.has("<｜Assistant｜>"), e.says("<｜tool▁sep｜>"), !e.says("```json"))
		},
	}

	// DeepSeekV32 is DeepSeek V3.2. Its checkpoints bring Python code instead
	// of a template; a template has to be given.
	DeepSeekV32 = Family{
		Name: "deepseek_v32", Format: parse.DeepSeekV32, Stops: []string{"<｜end▁of▁sentence｜>"}, Thinking: "thinking",
		Keep: []byte(`{"drop_thinking":false}`),
		recognise: func(e Evidence) int {
			return score(7, e.has("<｜Assistant｜>"), e.says("DSML｜", "function_calls") || e.ModelType == "deepseek_v32")
		},
	}

	// DeepSeekV4 is DeepSeek V4. It, too, has no template of its own.
	DeepSeekV4 = Family{
		Name: "deepseek_v4", Format: parse.DeepSeekV4, Stops: []string{"<｜end▁of▁sentence｜>"}, Thinking: "thinking",
		Keep: []byte(`{"drop_thinking":false}`),
		recognise: func(e Evidence) int {
			return score(7, e.has("<｜Assistant｜>"), e.says("DSML｜") && !e.says("function_calls") || e.ModelType == "deepseek_v4")
		},
	}

	// KimiK2 is Kimi K2, K2.5 and K2 Thinking.
	KimiK2 = Family{
		Name: "kimi_k2", Format: parse.Kimi, Stops: []string{"<|im_end|>", "[EOS]"},
		Keep: []byte(`{"preserve_thinking":true}`), Thinking: "thinking",
		recognise: func(e Evidence) int { return score(6, e.has("<|im_middle|>"), e.has("<|im_assistant|>")) },
	}

	// MiniMaxM2 is MiniMax M2, M2.5 and M2.7.
	MiniMaxM2 = Family{
		Name: "minimax_m2", Format: parse.MiniMax, Stops: []string{"[e~["},
		Keep:      []byte(`{"clear_thinking":false}`),
		recognise: func(e Evidence) int { return score(6, e.has("[e~["), e.has("]~b]")) },
	}

	// Llama3 is Llama 3.1, 3.2 and 3.3. <|eom_id|> ends a turn that waits for a
	// tool as <|eot_id|> ends any other.
	Llama3 = Family{
		Name: "llama3", Format: parse.Llama, Stops: []string{"<|eot_id|>", "<|eom_id|>"}, Ends: []string{"<|eom_id|>"},
		recognise: func(e Evidence) int { return score(6, e.has("<|eot_id|>"), e.has("<|start_header_id|>")) },
	}

	// Mistral is Mistral's instruct models with [INST].
	Mistral = Family{
		Name: "mistral", Format: parse.Mistral, Stops: []string{"</s>"},
		recognise: func(e Evidence) int { return score(6, e.has("[INST]"), e.has("[/INST]")) },
	}

	// Gemma3 is Gemma 3, which has no calls of its own.
	Gemma3 = Family{
		Name: "gemma3", Format: parse.Plain, Stops: []string{"<end_of_turn>"},
		recognise: func(e Evidence) int { return score(6, e.has("<end_of_turn>"), e.has("<start_of_turn>")) },
	}
)

// All lists all families.
func All() []Family {
	return []Family{
		ChatML, Qwen3, QwenXML, Nemotron3, GLM, GPTOSS, DeepSeekV3, DeepSeekV31, DeepSeekV32, DeepSeekV4,
		KimiK2, MiniMaxM2, Llama3, Mistral, Gemma3, Generic,
	}
}

func withoutThinking(f parse.Format) parse.Format {
	f.ThinkOpen, f.ThinkClose = "", ""
	return f
}

// score is n if all conditions hold.
func score(n int, conditions ...bool) int {
	for _, ok := range conditions {
		if !ok {
			return 0
		}
	}
	return n
}
