package dialect

import "turnlog.dev/schema/rawjson"

// Function is a tool definition in the canonical form, made of the client's
// bytes. Empty parts are left out.
func Function(name string, description, parameters []byte) []byte {
	out := rawjson.AppendText([]byte(`{"type":"function","function":{"name":`), name)
	if rawjson.KindOf(description) == rawjson.String {
		out = append(append(out, `,"description":`...), description...)
	}
	if rawjson.KindOf(parameters) == rawjson.Object {
		out = append(append(out, `,"parameters":`...), parameters...)
	}
	return append(out, "}}"...)
}

// A custom tool gets a text instead of arguments. To a model it is a function
// of one text, input.
const customParameters = `{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}`

// CustomFunction is a custom tool as a function. The grammar of its input, an
// object of syntax and definition or nil, stands in the description, which is
// all that a model without such tools can read.
func CustomFunction(name string, description, grammar []byte) []byte {
	if definition, ok := rawjson.Get(grammar, "definition"); ok {
		syntax, _ := rawjson.Get(grammar, "syntax")
		description = rawjson.AppendText(nil, rawjson.Text(description)+
			"\n\nThe input must follow this "+rawjson.Text(syntax)+" grammar:\n"+rawjson.Text(definition))
	}
	return Function(name, description, []byte(customParameters))
}

// CustomArguments are the arguments of a call of a custom tool.
func CustomArguments(input string) string {
	return string(append(rawjson.AppendText([]byte(`{"input":`), input), '}'))
}

// CustomInput is the text that a custom tool gets: the one argument, or, where
// the model did not keep to that, all that it wrote.
func CustomInput(arguments string) string {
	input, ok := rawjson.Get([]byte(arguments), "input")
	if !ok || rawjson.KindOf(input) != rawjson.String || rawjson.Valid([]byte(arguments)) != nil {
		return arguments
	}
	return rawjson.Text(input)
}
