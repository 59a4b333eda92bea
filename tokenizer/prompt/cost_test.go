package prompt_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/family/familytest"
	"turnlog.dev/tokenizer/prompt"
)

// meter counts the work that an assembler has done.
type meter struct {
	prompt.Renderer
	tokenizer.Tokenizer
	messages, rendered, encoded int
}

func (m *meter) Render(messages []message.Message, tools []message.Definition, o chat.Options) (chat.Output, error) {
	out, err := m.Renderer.Render(messages, tools, o)
	m.messages += len(messages)
	m.rendered += len(out.Text)
	return out, err
}

func (m *meter) EncodeSpans(text string) []tokenizer.Span {
	m.encoded += len(text)
	return m.Tokenizer.EncodeSpans(text)
}

// long is a conversation of about n tokens, and the call that it ends with.
func long(n int) (c message.Conversation, p prompt.Parent, added []message.Message) {
	line := strings.Repeat("the answer is on the way ", 20)
	messages := []message.Message{sys(line), user(line)}
	for i := 0; i < n/200; i++ {
		messages = append(messages, thinks("Look.", calls("", "run", list)), result("run", 0, line))
	}
	answer := thinks("Look.", calls("", "run", list, "weather", oslo))
	added = []message.Message{result("run", 0, line), result("weather", 1, "{}")}
	c = message.Split(append(append(messages, answer), added...), tools)
	return c, prompt.Parent{Len: n, Answer: answer, Thought: true}, added
}

func TestExtendCostsTheSameAtAnyLengthOfHistory(t *testing.T) {
	for _, cp := range familytest.Checkpoints() {
		if !cp.Parallel {
			continue
		}
		m := cp.Model()
		w := &meter{Renderer: m.Renderer, Tokenizer: m.Tokenizer}
		m.Renderer, m.Tokenizer = w, w
		a, err := prompt.New(m)
		require.NoError(t, err)
		o := prompt.Options{Time: now}
		var work [][3]int
		var allocations []float64
		for _, n := range []int{1_000, 10_000, 100_000} {
			c, parent, added := long(n)
			parent.Tail = a.StopTokens()[:1]
			w.messages, w.rendered, w.encoded = 0, 0, 0
			_, err := a.Extend(parent, c, added, o)
			require.NoError(t, err, cp.Name)
			work = append(work, [3]int{w.messages, w.rendered, w.encoded})
			allocations = append(allocations, testing.AllocsPerRun(20, func() {
				_, _ = a.Extend(parent, c, added, o)
			}))
		}
		require.Equal(t, work[0], work[1], cp.Name)
		require.Equal(t, work[0], work[2], cp.Name)
		require.InEpsilon(t, allocations[0], allocations[1], 0.1, cp.Name)
		require.InEpsilon(t, allocations[0], allocations[2], 0.1, cp.Name)
	}
}

func model(b *testing.B, name string) (*prompt.Assembler, prompt.Model) {
	for _, c := range familytest.Checkpoints() {
		if c.Name == name {
			m := c.Model()
			a, err := prompt.New(m)
			require.NoError(b, err)
			return a, m
		}
	}
	b.Fatal(name)
	return nil, prompt.Model{}
}

func BenchmarkExtend(b *testing.B) {
	for _, name := range []string{"qwen3-hybrid", "glm-4.7", "kimi-k2", "gpt-oss"} {
		for _, n := range []int{1_000, 100_000} {
			b.Run(name+map[int]string{1_000: "/1k", 100_000: "/100k"}[n], func(b *testing.B) {
				a, _ := model(b, name)
				c, parent, added := long(n)
				parent.Tail = a.StopTokens()[:1]
				o := prompt.Options{Time: now}
				b.ReportAllocs()
				for b.Loop() {
					if _, err := a.Extend(parent, c, added, o); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkRoot(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(map[int]string{1_000: "1k", 100_000: "100k"}[n], func(b *testing.B) {
			a, _ := model(b, "qwen3-hybrid")
			c, _, _ := long(n)
			o := prompt.Options{Time: now}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.Root(c, o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
