package prompt_test

import (
	"fmt"
	"slices"
	"strings"

	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/family"
	"turnlog.dev/tokenizer/prompt"
)

// A model answers a question with a tool call. The agent sends the answer back
// as JSON with the tool's result, and the next prompt is made twice: the usual
// way, by rendering and encoding all messages again, and from the ids that were
// sampled.
func Example() {
	tok := demo.Tokenizer()
	template, err := chat.New(demo.Template(), nil)
	if err != nil {
		panic(err)
	}
	prompts, err := prompt.New(prompt.Model{Renderer: template, Tokenizer: tok, Family: family.Qwen3})
	if err != nil {
		panic(err)
	}

	// The first call, and what the model sampled: it wrote no space behind the
	// colons, and put "Berlin" together from two tokens where the tokenizer
	// would have made other ones.
	question := message.Message{Role: message.User, Content: message.TextContent("How warm is it in Berlin?")}
	root, err := prompts.Root(message.Split([]message.Message{question}, nil), prompt.Options{})
	if err != nil {
		panic(err)
	}
	sampled := tok.Encode(nil, `<tool_call>`+"\n"+`{"name":"weather","arguments":{"city":"Be`)
	sampled = tok.Encode(sampled, `rlin"}}`+"\n"+`</tool_call><|im_end|>`)

	// What the agent gets, and sends back with the result.
	parser := prompts.Parser(root, message.Conversation{})
	parser.Push(sampled)
	reply, _ := parser.Finish("stop")
	answer := message.Message{Role: message.Assistant, Calls: []message.Call{
		{ID: "call_1", Name: reply.Calls[0].Name, Arguments: reply.Calls[0].Arguments},
	}}
	result := message.Message{Role: message.Tool, CallID: "call_1", Content: message.TextContent("21 degrees")}
	conversation := message.Split([]message.Message{question, answer, result}, nil)

	// The usual way.
	again, err := prompts.Root(conversation, prompt.Options{})
	if err != nil {
		panic(err)
	}
	usual := again.Append(nil, nil)

	// From the sampled ids.
	first := root.Append(nil, nil)
	first = append(first, sampled...)
	next, err := prompts.Extend(prompt.Parent{Len: len(first), Tail: sampled, Answer: answer}, conversation,
		[]message.Message{result}, prompt.Options{})
	if err != nil {
		panic(err)
	}
	exact := next.Append(nil, first)

	fmt.Println("sampled:", spell(sampled))
	start := len(first) - len(sampled)
	end := start + slices.Index(usual[start:], sampled[len(sampled)-1]) + 1
	fmt.Println("encoded:", spell(usual[start:end]))
	fmt.Println("the usual prompt keeps what was sampled:", slices.Equal(usual[:len(first)], first))
	fmt.Println("the exact prompt keeps what was sampled:", slices.Equal(exact[:len(first)], first))
	for _, s := range next.Segments {
		fmt.Printf("%s %q\n", s.Provenance, tok.Decode(s.IDs))
	}

	// Output:
	// sampled: [<tool_call>][\n][{"][name][":]["][weather][",]["][arguments][":][{"][city][":]["][Be][r][l][in]["][}}\n][</tool_call>][<|im_end|>]
	// encoded: [<tool_call>][\n][{"][name][":][ "][weather][",][ "][arguments][":][ {"][city][":][ "][B][er][l][in]["][}}\n][</tool_call>][<|im_end|>]
	// the usual prompt keeps what was sampled: false
	// the exact prompt keeps what was sampled: true
	// PROVENANCE_BOUNDARY "\n"
	// PROVENANCE_TOOL "<|im_start|>user\n<tool_response>\n21 degrees\n</tool_response><|im_end|>\n"
	// PROVENANCE_GENERATION_PROMPT "<|im_start|>assistant\n"
}

// spell shows where tokens begin and end.
func spell(ids []uint32) (out string) {
	for _, id := range ids {
		out += "[" + demo.Tokenizer().Decode([]uint32{id}) + "]"
	}
	return strings.ReplaceAll(out, "\n", `\n`)
}
