package responses_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/dialect/dialecttest"
	"turnlog.dev/gateway/dialect/responses"
	"turnlog.dev/schema/rawjson"
)

// FuzzStream asserts the order of events that OpenAI's SDK insists on, and that
// a client puts together exactly the answer, from the deltas and from the last
// event alike.
func FuzzStream(f *testing.F) {
	f.Add("\x00\x01\x12\x00\x16", "hm yes é🚀 \x00\u2028\"\\", true)
	f.Add("\x04\x11\x12\x11\x12", "abcdef", false)
	f.Fuzz(func(t *testing.T, script, text string, calls bool) {
		var out []byte
		s := responses.NewStream(responses.Options{Model: "m"}, func(b []byte) error { out = append(out, b...); return nil })
		a := dialecttest.Write(t, s, script, text, calls)

		var thought, said strings.Builder
		added, done := 0, map[string]bool{}
		list := dialecttest.Events(t, string(out))
		for i, e := range list {
			require.Equal(t, e.Name, e.Get("type"))
			require.Equal(t, strconv.Itoa(i), e.Get("sequence_number"))
			require.Equal(t, i == 0, e.Name == "response.created")
			if index := e.Get("output_index"); index != "" && e.Name != "response.output_item.added" {
				n, err := strconv.Atoi(index)
				require.NoError(t, err)
				require.Less(t, n, added, "an event about an item that was not added")
				require.False(t, done[index], "an event about an item that is done")
			}
			switch e.Name {
			case "response.output_item.added":
				require.Equal(t, strconv.Itoa(added), e.Get("output_index"))
				added++
			case "response.output_item.done":
				done[e.Get("output_index")] = true
			case "response.reasoning_summary_text.delta":
				thought.WriteString(e.Get("delta"))
			case "response.output_text.delta":
				said.WriteString(e.Get("delta"))
			}
		}
		last := list[len(list)-1]
		require.Equal(t, "response.completed", last.Name)
		require.Len(t, done, added)
		require.Equal(t, a.Message.Reasoning, thought.String())
		require.Equal(t, a.Message.Content.String(), said.String())

		response, _ := rawjson.Get(last.Data, "response")
		output, _ := rawjson.Get(response, "output")
		items, whole := 0, ""
		for item := range rawjson.Elements(output) {
			items++
			content, _ := rawjson.Get(item, "content")
			for part := range rawjson.Elements(content) {
				value, _ := rawjson.Get(part, "text")
				whole += rawjson.Text(value)
			}
		}
		require.Equal(t, added, items)
		require.Equal(t, a.Message.Content.String(), whole)
	})
}
