package prompt_test

import (
	"math"
	"runtime"
	"strings"
	"syscall"
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

// long is a conversation of about n tokens, as far as the format can say one,
// and the call that it ends with.
func long(cp familytest.Checkpoint, n int) (c message.Conversation, p prompt.Parent, added []message.Message) {
	line := strings.Repeat("the answer is on the way ", 20)
	messages := []message.Message{sys(line)}
	for i := 0; i < n/200; i++ {
		if cp.Calls {
			messages = append(messages, user(line), thinks("Look.", calls("", "run", list)), result("run", 0, line), says("So."))
		} else {
			messages = append(messages, user(line), says(line))
		}
	}
	messages = append(messages, user(line))
	answer := thinks("Look.", says("So."))
	added = []message.Message{user(line)}
	switch {
	case cp.Parallel:
		answer = thinks("Look.", calls("", "run", list, "weather", oslo))
		added = []message.Message{result("run", 0, line), result("weather", 1, "{}")}
	case cp.Calls:
		answer = thinks("Look.", calls("", "run", list))
		added = []message.Message{result("run", 0, line)}
	}
	c = message.Split(append(append(messages, answer), added...), tools)
	return c, prompt.Parent{Len: n, Answer: answer, Thought: true, Head: c.Head, Options: prompt.Options{Time: now}}, added
}

func TestExtendCostsTheSameAtAnyLengthOfHistory(t *testing.T) {
	for _, cp := range familytest.Checkpoints() {
		t.Run(cp.Name, func(t *testing.T) {
			m := cp.Model()
			w := &meter{Renderer: m.Renderer, Tokenizer: m.Tokenizer}
			m.Renderer, m.Tokenizer = w, w
			a, err := prompt.New(m)
			require.NoError(t, err)
			o := prompt.Options{Time: now}
			var work [][3]int
			var allocations, bytes []float64
			for _, n := range []int{1_000, 10_000, 100_000} {
				c, parent, added := long(cp, n)
				parent.Tail = a.StopTokens()[:1]
				w.messages, w.rendered, w.encoded = 0, 0, 0
				_, err := a.Extend(parent, c, added, o)
				require.NoError(t, err)
				work = append(work, [3]int{w.messages, w.rendered, w.encoded})
				require.Positive(t, w.encoded)
				allocations = append(allocations, testing.AllocsPerRun(20, func() {
					_, _ = a.Extend(parent, c, added, o)
				}))
				bytes = append(bytes, allocated(20, func() {
					_, _ = a.Extend(parent, c, added, o)
				}))
			}
			for i := 1; i < 3; i++ {
				require.Equal(t, work[0], work[i])
				require.InEpsilon(t, allocations[0], allocations[i], 0.1)
				require.InEpsilon(t, bytes[0], bytes[i], 0.1)
			}
		})
	}
}

// allocated is the least number of bytes that a call of fn allocates.
func allocated(runs int, fn func()) float64 {
	least := math.Inf(1)
	var before, after runtime.MemStats
	for range runs {
		runtime.ReadMemStats(&before)
		fn()
		runtime.ReadMemStats(&after)
		least = min(least, float64(after.TotalAlloc-before.TotalAlloc))
	}
	return least
}

func model(b *testing.B, name string) (*prompt.Assembler, familytest.Checkpoint) {
	for _, c := range familytest.Checkpoints() {
		if c.Name == name {
			a, err := prompt.New(c.Model())
			require.NoError(b, err)
			return a, c
		}
	}
	b.Fatal(name)
	return nil, familytest.Checkpoint{}
}

// loop is b.Loop, and reports the processor time of an operation: on a busy
// machine the clock is no measure.
func loop(b *testing.B, fn func() error) {
	b.ReportAllocs()
	began := processor()
	for b.Loop() {
		if err := fn(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processor()-began)/float64(b.N), "cpu-ns/op")
}

func processor() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func BenchmarkExtend(b *testing.B) {
	for _, name := range []string{"qwen3-hybrid", "glm-4.7", "kimi-k2", "gpt-oss"} {
		for _, n := range []int{1_000, 100_000} {
			b.Run(name+map[int]string{1_000: "/1k", 100_000: "/100k"}[n], func(b *testing.B) {
				a, cp := model(b, name)
				c, parent, added := long(cp, n)
				parent.Tail = a.StopTokens()[:1]
				o := prompt.Options{Time: now}
				loop(b, func() error {
					_, err := a.Extend(parent, c, added, o)
					return err
				})
			})
		}
	}
}

func BenchmarkRoot(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(map[int]string{1_000: "1k", 100_000: "100k"}[n], func(b *testing.B) {
			a, cp := model(b, "qwen3-hybrid")
			c, _, _ := long(cp, n)
			o := prompt.Options{Time: now}
			loop(b, func() error {
				_, err := a.Root(c, o)
				return err
			})
		})
	}
}
