// Package familytest has what tests need to stand in for checkpoints: for each
// family a minimal template, written for this project after the public
// descriptions of the format, and a tokenizer that holds the family's special
// tokens. No vendor's template or vocabulary is here; tests/parity fetches real
// ones.
package familytest

import (
	"embed"
	"fmt"
	"strings"

	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/family"
)

//go:embed templates/*.jinja
var templates embed.FS

// Checkpoint stands in for one model.
type Checkpoint struct {
	// Name is the model kind; several may be of one family.
	Name   string
	Family family.Family
	// Special and Marks are the added tokens: special ones, and others.
	Special, Marks []string
	// Thinks: the model writes reasoning.
	Thinks bool
	// Calls: the format has calls. Parallel: more than one at once.
	Calls, Parallel bool
	// Alone: an answer with calls has no text beside them.
	Alone bool
	// Kwargs are template arguments that the case is about.
	Kwargs string
	// Names are the special tokens that the template knows by name.
	Names chat.SpecialTokens
	// StopTokens are what generation_config.json would name.
	StopTokens []uint32
	// File is the template's name. Source and Own are a template and a tokenizer
	// to take instead of the stand-ins.
	File, Source string
	Own          tokenizer.Tokenizer
}

// Template returns the checkpoint's template.
func (c Checkpoint) Template() string {
	if c.Source != "" {
		return c.Source
	}
	b, err := templates.ReadFile("templates/" + c.File + ".jinja")
	if err != nil {
		panic(fmt.Sprintf("familytest: %v", err))
	}
	return string(b)
}

var (
	chatml   = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
	thinking = []string{"<think>", "</think>"}
	calling  = []string{"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"}
)

func tokens(lists ...[]string) (all []string) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// Checkpoints lists all stand-ins.
func Checkpoints() []Checkpoint {
	deepseek := strings.Fields("<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜>" +
		" <｜tool▁calls▁begin｜> <｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁sep｜>" +
		" <｜tool▁outputs▁begin｜> <｜tool▁outputs▁end｜> <｜tool▁output▁begin｜> <｜tool▁output▁end｜>")
	return []Checkpoint{
		{Name: "qwen2.5", Family: family.ChatML, Special: chatml, Marks: calling[:2], Calls: true, Parallel: true, File: "chatml"},
		{Name: "qwen3-hybrid", Family: family.Qwen3, Special: chatml, Marks: tokens(thinking, calling), Thinks: true, Calls: true, Parallel: true, File: "qwen3"},
		{Name: "qwen3-hybrid, thinking off", Family: family.Qwen3, Special: chatml, Marks: tokens(thinking, calling), Calls: true, Parallel: true, Kwargs: `{"enable_thinking":false}`, File: "qwen3"},
		{Name: "qwen3-instruct-2507", Family: family.Qwen3, Special: chatml, Marks: tokens(thinking, calling), Calls: true, Parallel: true, File: "qwen3_instruct"},
		{Name: "qwen3-thinking-2507", Family: family.Qwen3, Special: chatml, Marks: tokens(thinking, calling), Thinks: true, Calls: true, Parallel: true, File: "qwen3_thinking"},
		{Name: "qwen3-coder", Family: family.QwenXML, Special: chatml, Marks: tokens(calling), Calls: true, Parallel: true, File: "qwen3_coder"},
		{Name: "qwen3.5", Family: family.QwenXML, Special: chatml, Marks: tokens(thinking, calling), Thinks: true, Calls: true, Parallel: true, File: "qwen35"},
		{Name: "nemotron-3", Family: family.Nemotron3, Special: chatml, Marks: tokens(thinking, calling), Thinks: true, Calls: true, Parallel: true, File: "nemotron3"},
		{
			Name: "glm-4.5", Family: family.GLM, Special: []string{"<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "/nothink"},
			Marks:  tokens(thinking, calling, []string{"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}),
			Thinks: true, Calls: true, Parallel: true, File: "glm45",
		},
		{
			Name: "glm-4.7", Family: family.GLM, Special: []string{"<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"},
			Marks:  tokens(thinking, calling, []string{"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}),
			Thinks: true, Calls: true, Parallel: true, File: "glm47",
		},
		{
			Name: "gpt-oss", Family: family.GPTOSS, Special: strings.Fields("<|startoftext|> <|endoftext|> <|return|> <|constrain|> <|channel|> <|start|> <|end|> <|message|> <|call|>"),
			Thinks: true, Calls: true, Alone: true, File: "gpt_oss",
		},
		{Name: "deepseek-v3", Family: family.DeepSeekV3, Special: deepseek[:2], Marks: tokens(deepseek[2:], thinking), Calls: true, Parallel: true, File: "deepseek_v3"},
		{Name: "deepseek-v3.1", Family: family.DeepSeekV31, Special: deepseek[:2], Marks: tokens(deepseek[2:], thinking), Calls: true, Parallel: true, File: "deepseek_v31"},
		{
			Name: "deepseek-v3.2", Family: family.DeepSeekV32, Special: deepseek[:2], Marks: tokens(deepseek[2:4], thinking, []string{"｜DSML｜"}),
			Thinks: true, Calls: true, Parallel: true, Kwargs: `{"thinking":true}`, File: "deepseek_v32",
		},
		{
			Name: "deepseek-v4", Family: family.DeepSeekV4, Special: deepseek[:2], Marks: tokens(deepseek[2:4], thinking, []string{"｜DSML｜"}),
			Thinks: true, Calls: true, Parallel: true, Kwargs: `{"thinking":true}`, File: "deepseek_v4",
		},
		{
			Name: "kimi-k2", Family: family.KimiK2,
			Special: strings.Fields("[BOS] [EOS] <|im_end|> <|im_user|> <|im_assistant|> <|im_system|> <|im_middle|>"),
			Marks:   tokens(thinking, strings.Fields("<|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> <|tool_call_argument_begin|> <|tool_call_end|>")),
			Thinks:  true, Calls: true, Parallel: true, File: "kimi_k2",
		},
		{
			Name: "minimax-m2", Family: family.MiniMaxM2, Special: []string{"]~!b[", "]~b]", "[e~["},
			Marks:  tokens(thinking, []string{"<minimax:tool_call>", "</minimax:tool_call>"}),
			Thinks: true, Calls: true, Parallel: true, File: "minimax_m2",
		},
		{
			Name: "llama-3.1", Family: family.Llama3,
			Special: strings.Fields("<|begin_of_text|> <|end_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|eom_id|> <|python_tag|>"),
			Calls:   true, Alone: true, File: "llama3",
		},
		{
			Name: "mistral-7b-v0.3", Family: family.Mistral,
			Special: strings.Fields("<s> </s> [INST] [/INST] [TOOL_CALLS] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS]"),
			Calls:   true, Parallel: true, Alone: true, File: "mistral_v3",
		},
		{
			Name: "mistral-small-3.2", Family: family.Mistral,
			Special: strings.Fields("<s> </s> [INST] [/INST] [TOOL_CALLS] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [CALL_ID] [ARGS]"),
			Calls:   true, Parallel: true, File: "mistral_v11",
		},
		{Name: "gemma-3", Family: family.Gemma3, Special: strings.Fields("<bos> <eos> <start_of_turn> <end_of_turn>"), File: "gemma3"},
	}
}
