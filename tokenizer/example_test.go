package tokenizer_test

import (
	"fmt"

	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/demo"
)

// A conversation becomes a text, the text becomes ids, and ids that a model
// samples become text again, one by one.
func Example() {
	template, err := chat.New(demo.Template(), chat.SpecialTokens{"eos_token": "<|im_end|>"})
	if err != nil {
		panic(err)
	}
	prompt, err := template.Render([]message.Message{
		{Role: message.System, Content: message.TextContent("Be brief.")},
		{Role: message.User, Content: message.TextContent("Is the test green?")},
	}, nil, chat.Options{AddGenerationPrompt: true})
	if err != nil {
		panic(err)
	}
	fmt.Print(prompt.Text)

	t := demo.Tokenizer()
	ids := t.Encode(nil, prompt.Text)
	fmt.Println(len(prompt.Text), "bytes are", len(ids), "ids")

	sampled := t.Encode(nil, "Yes 👍<|im_end|>")
	stream := tokenizer.NewStream(t)
	for _, id := range sampled {
		if text := stream.Append(nil, id); len(text) > 0 {
			fmt.Printf("%q ", text)
		}
	}
	// Output:
	// <|im_start|>system
	// Be brief.<|im_end|>
	// <|im_start|>user
	// Is the test green?<|im_end|>
	// <|im_start|>assistant
	// 107 bytes are 23 ids
	// "Y" "es" " " "👍" "<|im_end|>"
}
