package parse

import (
	"strconv"
	"strings"

	"turnlog.dev/schema/rawjson"
)

// The formats. What each looks like stands beside it, with … for what the
// model fills in.
var (
	// Plain has neither thinking nor calls.
	Plain = Format{Name: "plain"}

	// Hermes: <think>…</think> and, for each call,
	//
	//	<tool_call>
	//	{"name": "…", "arguments": {…}}
	//	</tool_call>
	//
	// Qwen 2.5, Qwen 3 and many others.
	Hermes = Format{
		Name: "hermes", ThinkOpen: "<think>", ThinkClose: "</think>", Thinking: "\n",
		CallOpen: "<tool_call>", CallClose: "</tool_call>", Joint: "\n", block: hermes,
		shapes: []shape{{
			forms: [][]string{{"<tool_call>", "\n{\"name\": ", holeQuoted, ", \"arguments\": ", holeArguments, "}\n", "</tool_call>"}},
			join:  []string{"\n"},
		}},
	}

	// QwenXML:
	//
	//	<tool_call>
	//	<function=…>
	//	<parameter=…>
	//	…
	//	</parameter>
	//	</function>
	//	</tool_call>
	//
	// Qwen3-Coder, Qwen 3.5 and 3.6, Nemotron 3.
	QwenXML = Format{
		Name: "qwen_xml", ThinkOpen: "<think>", ThinkClose: "</think>", Thinking: space, CallEndsThinking: true,
		CallOpen: "<tool_call>", CallClose: "</tool_call>", Trims: true, block: qwenXML,
		shapes: []shape{{
			forms:     [][]string{{"<tool_call>", "\n<function=", holeName, ">\n", holeArguments, "</function>\n", "</tool_call>"}},
			join:      []string{"\n"},
			parameter: &parameter{text: []string{"<parameter=", holeKey, ">\n", holeValue, "\n</parameter>\n"}, end: "</parameter>"},
		}},
	}

	// GLM:
	//
	//	<tool_call>…
	//	<arg_key>…</arg_key>
	//	<arg_value>…</arg_value>
	//	</tool_call>
	//
	// GLM 4.5 and 4.6; from 4.7 on without the line breaks.
	GLM = Format{
		Name: "glm", ThinkOpen: "<think>", ThinkClose: "</think>", Thinking: "\n",
		CallOpen: "<tool_call>", CallClose: "</tool_call>", Trims: true, block: glm,
		marks: []string{"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
		shapes: []shape{{
			open:  []string{holeBreak},
			forms: [][]string{{"<tool_call>", holeName, holeBreak, holeArguments, "</tool_call>"}},
			join:  []string{holeBreak},
			parameter: &parameter{
				text: []string{"<arg_key>", holeKey, "</arg_key>", holeBreak, "<arg_value>", holeValue, "</arg_value>", holeBreak},
				end:  "</arg_value>",
			},
		}},
	}

	// MiniMax:
	//
	//	<minimax:tool_call>
	//	<invoke name="…">
	//	<parameter name="…">…</parameter>
	//	</invoke>
	//	</minimax:tool_call>
	MiniMax = Format{
		Name: "minimax", ThinkOpen: "<think>", ThinkClose: "</think>", Thinking: "\n",
		CallOpen: "<minimax:tool_call>", CallClose: "</minimax:tool_call>", Joint: "\n", block: minimax,
		shapes: []shape{{
			open:      []string{"<minimax:tool_call>", "\n"},
			forms:     [][]string{{"<invoke name=\"", holeName, "\">\n", holeArguments, "</invoke>\n"}},
			close:     []string{"</minimax:tool_call>"},
			parameter: &parameter{text: []string{"<parameter name=\"", holeKey, "\">", holeValue, "</parameter>\n"}, end: "</parameter>"},
		}},
	}

	// DeepSeekV3, with a fenced block of JSON for each call:
	//
	//	<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>…
	//	```json
	//	{…}
	//	```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
	//
	// DeepSeek V3 and R1.
	DeepSeekV3 = deepSeek("deepseek_v3", "\n", deepSeekFenced,
		"<｜tool▁call▁begin｜>", "function", "<｜tool▁sep｜>", holeName, "\n```json\n", holeArguments, "\n```", "<｜tool▁call▁end｜>")

	// DeepSeekV31 has neither the word "function" nor the fence:
	//
	//	<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>…<｜tool▁sep｜>{…}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
	DeepSeekV31 = deepSeek("deepseek_v31", "", deepSeekPlain,
		"<｜tool▁call▁begin｜>", holeName, "<｜tool▁sep｜>", holeArguments, "<｜tool▁call▁end｜>")

	// DeepSeekV32:
	//
	//	<｜DSML｜function_calls>
	//	<｜DSML｜invoke name="…">
	//	<｜DSML｜parameter name="…" string="true|false">…</｜DSML｜parameter>
	//	</｜DSML｜invoke>
	//	</｜DSML｜function_calls>
	DeepSeekV32 = deepSeekMarkup("deepseek_v32", "function_calls")

	// DeepSeekV4 is DeepSeekV32 with <｜DSML｜tool_calls> around the calls.
	DeepSeekV4 = deepSeekMarkup("deepseek_v4", "tool_calls")

	// Kimi:
	//
	//	<|tool_calls_section_begin|><|tool_call_begin|>functions.…:0<|tool_call_argument_begin|>{…}<|tool_call_end|><|tool_calls_section_end|>
	//
	// The id is the model's own and goes back to it as it is.
	Kimi = Format{
		Name: "kimi", ThinkOpen: "<think>", ThinkClose: "</think>", CallEndsThinking: true,
		CallOpen: "<|tool_calls_section_begin|>", CallClose: "<|tool_calls_section_end|>", block: kimi,
		marks: []string{"<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"},
		shapes: []shape{{
			open: []string{"<|tool_calls_section_begin|>"},
			forms: [][]string{{
				"<|tool_call_begin|>", "functions.", holeName, ":", holeNumber, "<|tool_call_argument_begin|>", holeArguments, "<|tool_call_end|>",
			}},
			close: []string{"<|tool_calls_section_end|>"},
		}},
	}

	// Llama 3: the whole reply is {"name": "…", "parameters": {…}}, or several
	// with a semicolon between them, possibly behind <|python_tag|>.
	Llama = Format{
		Name: "llama", CallOpen: "<|python_tag|>", Bare: true, block: llama,
		shapes: []shape{{
			forms: [][]string{{"{\"name\": ", holeQuoted, ", \"parameters\": ", holeArguments, "}"}}, join: []string{"; "},
		}},
	}

	// Mistral: [TOOL_CALLS] and a list of {"name": …, "arguments": …, "id": …},
	// or for each call [TOOL_CALLS]…[CALL_ID]…[ARGS]{…}, with [CALL_ID] in some
	// versions only.
	Mistral = Format{
		Name: "mistral", ThinkOpen: "[THINK]", ThinkClose: "[/THINK]",
		CallOpen: "[TOOL_CALLS]", block: mistral,
		marks: []string{"[CALL_ID]", "[ARGS]"},
		shapes: []shape{
			{
				needs: "[ARGS]",
				forms: [][]string{
					{"[TOOL_CALLS]", holeName, "[ARGS]", holeArguments},
					{"[TOOL_CALLS]", holeName, "[CALL_ID]", holeID, "[ARGS]", holeArguments},
				},
			},
			{
				open: []string{"[TOOL_CALLS]", holeSpace, "["},
				forms: [][]string{
					{"{\"name\": ", holeQuoted, ", \"arguments\": ", holeArguments, "}"},
					{"{\"name\": ", holeQuoted, ", \"arguments\": ", holeArguments, ", \"id\": \"", holeID, "\"}"},
				},
				join: []string{", "}, close: []string{"]"},
			},
		},
	}

	// Harmony: messages in channels, as gpt-oss writes them.
	//
	//	<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…<|return|>
	//	… to=functions.…<|channel|>commentary <|constrain|>json<|message|>{…}<|call|>
	//
	// The grammar of a forced call ends where its arguments do: <|call|> ends the
	// turn, and engines let such a token come only behind all that a grammar says.
	Harmony = Format{
		Name: "harmony", harmony: true,
		shapes: []shape{{
			needs: "<|message|>", alone: true,
			forms: [][]string{
				{"<|channel|>", "commentary to=functions.", holeName, holeSpace, "<|constrain|>", "json", "<|message|>", holeArguments},
				{" to=functions.", holeName, "<|channel|>", "commentary", holeSpace, "<|constrain|>", "json", "<|message|>", holeArguments},
				{" to=functions.", holeName, "<|channel|>", "commentary json", "<|message|>", holeArguments},
			},
		}},
	}
)

// Formats lists all formats but Plain.
func Formats() []Format {
	return []Format{
		Hermes, QwenXML, GLM, MiniMax, DeepSeekV3, DeepSeekV31, DeepSeekV32, DeepSeekV4, Kimi, Mistral, Harmony, Llama,
	}
}

func hermes(b *block) []Call {
	s, ok := b.json()
	if !ok {
		return nil
	}
	if c, ok := object([]byte(s), []string{"arguments"}); ok {
		return []Call{c}
	}
	return nil
}

func qwenXML(b *block) (calls []Call) {
	for b.space(); b.rest != ""; b.space() {
		if !b.take("<function=") {
			return nil
		}
		name, ok := b.until(">")
		if !ok || !isName(name) {
			return nil
		}
		args := b.arguments(name)
		for b.space(); !b.take("</function>"); b.space() {
			if !b.take("<parameter=") {
				return nil
			}
			key, ok := b.until(">")
			if !ok {
				return nil
			}
			value, ok := b.until("</parameter>")
			if !ok {
				return nil
			}
			if !args.add(key, strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")) {
				return nil
			}
		}
		calls = append(calls, Call{Name: name, Arguments: args.String()})
	}
	return calls
}

func glm(b *block) []Call {
	name := b.rest
	if i := strings.Index(name, b.mark("<arg_key>")); i >= 0 {
		name = name[:i]
	}
	b.rest = b.rest[len(name):]
	name = strings.Trim(b.text(name), space)
	if !isName(name) {
		return nil
	}
	args := b.arguments(name)
	for b.space(); b.rest != ""; b.space() {
		if !b.take("<arg_key>") {
			return nil
		}
		key, ok := b.until("</arg_key>")
		if !ok {
			return nil
		}
		if b.space(); !b.take("<arg_value>") {
			return nil
		}
		value, ok := b.until("</arg_value>")
		if !ok {
			return nil
		}
		if !args.add(key, value) {
			return nil
		}
	}
	return []Call{{Name: name, Arguments: args.String()}}
}

func minimax(b *block) (calls []Call) {
	for b.space(); b.rest != ""; b.space() {
		if !b.take(`<invoke name="`) {
			return nil
		}
		name, ok := b.until(`">`)
		if !ok || !isName(name) {
			return nil
		}
		args := b.arguments(name)
		for b.space(); !b.take("</invoke>"); b.space() {
			if !b.take(`<parameter name="`) {
				return nil
			}
			key, ok := b.until(`">`)
			if !ok {
				return nil
			}
			value, ok := b.until("</parameter>")
			if !ok {
				return nil
			}
			if !args.add(key, value) {
				return nil
			}
		}
		calls = append(calls, Call{Name: name, Arguments: args.String()})
	}
	return calls
}

func deepSeekMarkup(name, tag string) Format {
	return Format{
		Name: name, ThinkOpen: "<think>", ThinkClose: "</think>",
		CallOpen: "<｜DSML｜" + tag + ">", CallClose: "</｜DSML｜" + tag + ">", Joint: "\n\n", block: dsml,
		marks: []string{"｜DSML｜"},
		shapes: []shape{{
			open:  []string{"\n\n<", "｜DSML｜", tag + ">\n"},
			forms: [][]string{{"<", "｜DSML｜", "invoke name=\"", holeName, "\">\n", holeArguments, "</", "｜DSML｜", "invoke>\n"}},
			close: []string{"</", "｜DSML｜", tag + ">"},
			parameter: &parameter{
				text: dsmlParameter("true"), json: dsmlParameter("false"), end: "｜DSML｜",
			},
		}},
	}
}

func dsmlParameter(text string) []string {
	return []string{
		"<", "｜DSML｜", "parameter name=\"", holeKey, "\" string=\"" + text + "\">", holeValue, "</", "｜DSML｜", "parameter>\n",
	}
}

func dsml(b *block) (calls []Call) {
	for b.space(); b.rest != ""; b.space() {
		if !b.take(`<｜DSML｜invoke name="`) {
			return nil
		}
		name, ok := b.until(`">`)
		if !ok || !isName(name) {
			return nil
		}
		args := b.arguments(name)
		for b.space(); !b.take("</｜DSML｜invoke>"); b.space() {
			if !b.take(`<｜DSML｜parameter name="`) {
				return nil
			}
			key, ok := b.until(`" string="`)
			if !ok {
				return nil
			}
			str, ok := b.until(`">`)
			if !ok || str != "true" && str != "false" {
				return nil
			}
			value, ok := b.until("</｜DSML｜parameter>")
			if !ok || !args.new(key) {
				return nil
			}
			switch raw := []byte(strings.Trim(value, space)); {
			case str == "true":
				args.set(key, rawjson.AppendText(nil, value))
			case rawjson.Valid(raw) == nil:
				args.set(key, raw)
			default:
				return nil
			}
		}
		calls = append(calls, Call{Name: name, Arguments: args.String()})
	}
	return calls
}

func deepSeek(name, thinking string, call func(*block) (Call, bool), shaped ...string) Format {
	return Format{
		Name: name, ThinkOpen: "<think>", ThinkClose: "</think>", Thinking: thinking,
		CallOpen: "<｜tool▁calls▁begin｜>", CallClose: "<｜tool▁calls▁end｜>",
		marks:  []string{"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"},
		shapes: []shape{{open: []string{"<｜tool▁calls▁begin｜>"}, forms: [][]string{shaped}, close: []string{"<｜tool▁calls▁end｜>"}}},
		block: func(b *block) (calls []Call) {
			for b.space(); b.rest != ""; b.space() {
				if !b.take("<｜tool▁call▁begin｜>") {
					return nil
				}
				c, ok := call(b)
				if !ok || !isName(c.Name) || !isObject(c.Arguments) {
					return nil
				}
				calls = append(calls, c)
			}
			return calls
		},
	}
}

func deepSeekFenced(b *block) (c Call, ok bool) {
	if !b.take("function<｜tool▁sep｜>") {
		return c, false
	}
	if c.Name, ok = b.until("\n```json\n"); !ok {
		return c, false
	}
	c.Arguments, ok = b.until("\n```<｜tool▁call▁end｜>")
	return c, ok
}

func deepSeekPlain(b *block) (c Call, ok bool) {
	if c.Name, ok = b.until("<｜tool▁sep｜>"); !ok {
		return c, false
	}
	c.Arguments, ok = b.until("<｜tool▁call▁end｜>")
	return c, ok
}

func kimi(b *block) (calls []Call) {
	for b.space(); b.rest != ""; b.space() {
		if !b.take("<|tool_call_begin|>") {
			return nil
		}
		id, ok := b.until("<|tool_call_argument_begin|>")
		if !ok {
			return nil
		}
		args, ok := b.until("<|tool_call_end|>")
		if !ok || !isObject(args) {
			return nil
		}
		// functions.NAME:INDEX; the name may hold dots and colons itself.
		id = strings.Trim(id, space)
		name, ok := strings.CutPrefix(id, "functions.")
		colon := strings.LastIndexByte(name, ':')
		if !ok || colon < 0 || !isName(name[:colon]) || !isIndex(name[colon+1:]) {
			return nil
		}
		calls = append(calls, Call{ModelID: id, Name: name[:colon], Arguments: args})
	}
	return calls
}

// isIndex reports whether text is a number as counters print it.
func isIndex(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 0 && strconv.Itoa(n) == text
}

func llama(b *block) (calls []Call) {
	list := strings.Trim(b.text(b.rest), space)
	for more := true; more; {
		one := list[:value(list)]
		c, ok := object([]byte(one), []string{"parameters", "arguments"}, "type")
		if !ok || rawjson.Valid([]byte(one)) != nil {
			if len(calls) > 0 || meant([]byte(one)) {
				b.flags.set(MalformedCall)
			}
			return nil
		}
		calls = append(calls, c)
		list = strings.Trim(list[len(one):], space)
		rest, again := strings.CutPrefix(list, ";")
		if list != "" && !again {
			b.flags.set(MalformedCall)
			return nil
		}
		list, more = strings.Trim(rest, space), again
	}
	return calls
}

// meant reports whether an object was to be a call, and not an answer in JSON.
func meant(raw []byte) bool {
	_, name := rawjson.Get(raw, "name")
	_, parameters := rawjson.Get(raw, "parameters")
	_, arguments := rawjson.Get(raw, "arguments")
	return name && (parameters || arguments)
}

// value is the length of the JSON object that s begins with: up to the brace
// that closes the first one, or all of s.
func value(s string) int {
	depth, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

func mistral(b *block) (calls []Call) {
	if strings.HasPrefix(strings.TrimLeft(b.rest, space), "[") {
		s, ok := b.json()
		if !ok {
			return nil
		}
		for e := range rawjson.Elements([]byte(s)) {
			c, ok := object(e, []string{"arguments"}, "id")
			if !ok {
				return nil
			}
			calls = append(calls, c)
		}
		return calls
	}
	for part := range strings.SplitSeq(b.rest, b.mark("[TOOL_CALLS]")) {
		one := &block{vocabulary: b.vocabulary, rest: part}
		head, ok := one.until("[ARGS]")
		if !ok {
			return nil
		}
		name, id, named := strings.Cut(head, "[CALL_ID]")
		args, _ := one.json()
		if !isName(name) || named && !isName(id) || !isObject(args) {
			return nil
		}
		calls = append(calls, Call{ModelID: id, Name: name, Arguments: args})
	}
	return calls
}
