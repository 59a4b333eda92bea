package mock_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/engine/mock"
	"turnlog.dev/gateway/engine/sglang"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/tokenizer/demo"
)

const (
	system = "<|im_start|>system\n# Tools\n\nThese functions can be called:\n<tools>\n" +
		`{"type": "function", "function": {"name": "write_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}}` + "\n" +
		`{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}, "required": ["path", "limit"]}}}` + "\n" +
		"</tools>\n<|im_end|>\n"
	open = "<|im_start|>assistant\n"
)

func user(text string) string { return "<|im_start|>user\n" + text + "<|im_end|>\n" }

func result(text string) string {
	return "<|im_start|>user\n<tool_response>\n" + text + "\n</tool_response><|im_end|>\n"
}

func said(text string) string { return open + text + "<|im_end|>\n" }

// model is a mock behind a real adapter: what it says to a prompt.
type model struct {
	server *mock.Server
	engine engine.Engine
}

func start(t *testing.T, cfg mock.Config) model {
	t.Helper()
	cfg.Tokenizer = demo.Tokenizer()
	m, err := mock.New(cfg)
	require.NoError(t, err)
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	e, err := sglang.New(sglang.Config{Config: wire.Config{URL: srv.URL}})
	require.NoError(t, err)
	return model{m, e}
}

func (m model) ask(t *testing.T, prompt string, seed *int64) (string, []uint32, error) {
	t.Helper()
	tok := demo.Tokenizer()
	var ids []uint32
	_, err := m.engine.Generate(t.Context(), engine.Request{
		ID: "r", Prompt: tok.Encode(nil, prompt+open), RoutedFrom: -1, Sampling: engine.Sampling{Seed: seed},
	}, func(c engine.Chunk) error { ids = append(ids, c.IDs...); return nil })
	return strings.TrimSuffix(tok.Decode(ids), "<|im_end|>"), ids, err
}

func TestTheDemoCallsAToolAndThenAnswers(t *testing.T) {
	m := start(t, mock.Config{})
	prompt := system + user("What is in the file?")
	text, _, err := m.ask(t, prompt, nil)
	require.NoError(t, err)
	require.Contains(t, text, "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": ")
	require.Contains(t, text, `"limit": `)
	turns := 0
	for ; strings.Contains(text, "<tool_call>"); turns++ {
		prompt += said(text) + result("nothing but leaves")
		text, _, err = m.ask(t, prompt, nil)
		require.NoError(t, err)
	}
	require.Contains(t, text, "nothing but leaves")
	require.LessOrEqual(t, turns, 3)

	text, _, err = m.ask(t, user("Good morning"), nil)
	require.NoError(t, err)
	require.Contains(t, text, "Good morning", "without tools it answers")
}

func TestTheSamePromptAndSeedGiveTheSameAnswerAndAnotherSeedAnother(t *testing.T) {
	prompt := user("Tell me something about the sea and the wind.")
	a, b := start(t, mock.Config{Seed: 1, NonCanonical: 0.5}), start(t, mock.Config{Seed: 1, NonCanonical: 0.5})
	_, first, err := a.ask(t, prompt, nil)
	require.NoError(t, err)
	_, again, err := b.ask(t, prompt, nil)
	require.NoError(t, err)
	require.Equal(t, first, again)
	seed := int64(5)
	_, other, err := a.ask(t, prompt, &seed)
	require.NoError(t, err)
	require.NotEqual(t, first, other)
}

func TestATextIsSometimesSampledInAnotherSplit(t *testing.T) {
	const text = "The gateway writes every turn to a durable log before it is given to the agent."
	tok := demo.Tokenizer()
	m := start(t, mock.Config{NonCanonical: 0.3, Script: mock.Always(mock.Say(text))})
	got, ids, err := m.ask(t, user("x"), nil)
	require.NoError(t, err)
	require.Equal(t, text, got)
	require.NotEqual(t, tok.Encode(nil, text+"<|im_end|>"), ids)

	m = start(t, mock.Config{Script: mock.Always(mock.Say(text))})
	_, ids, err = m.ask(t, user("x"), nil)
	require.NoError(t, err)
	require.Equal(t, tok.Encode(nil, text+"<|im_end|>"), ids)
}

func TestAUserSaysWhatTheDemoDoesStepByStep(t *testing.T) {
	m := start(t, mock.Config{})
	prompt := system + user("Please.\nmock: think Hm.\nmock: call write_file {\"path\": \"a\"}\nmock: and read_file {\"path\": \"b\", \"limit\": 1}\nmock: say All done.")
	text, _, err := m.ask(t, prompt, nil)
	require.NoError(t, err)
	require.Equal(t, "<think>\nHm.\n</think>\n\n"+mock.CallText("write_file", `{"path": "a"}`)+"\n"+mock.CallText("read_file", `{"path": "b", "limit": 1}`), text)
	text, _, err = m.ask(t, prompt+said(text)+result("ok"), nil)
	require.NoError(t, err)
	require.Equal(t, "All done.", text)

	_, _, err = m.ask(t, user("mock: status 503"), nil)
	require.Equal(t, engine.Overloaded, engine.ClassOf(err))
	_, ids, err := m.ask(t, user("mock: cut 4"), nil)
	require.Equal(t, engine.Unreachable, engine.ClassOf(err))
	require.Len(t, ids, 4)
}

func TestAScriptIsChosenByTheLastUserOrToolMessage(t *testing.T) {
	m := start(t, mock.Config{Script: mock.Match(mock.Steps(mock.Say("one"), mock.Say("two")),
		mock.Rule{Contains: "weather", Reply: mock.Call("look", "{}")},
		mock.Rule{Contains: "sunny", Reply: mock.Say("It is sunny.")},
	)})
	for prompt, want := range map[string]string{
		user("How is the weather?"):                               mock.CallText("look", "{}"),
		user("How is the weather?") + said("x") + result("sunny"): "It is sunny.",
	} {
		text, _, err := m.ask(t, prompt, nil)
		require.NoError(t, err)
		require.Equal(t, want, text)
	}
	for _, want := range []string{"one", "two", "two"} {
		text, _, err := m.ask(t, user("hello"), nil)
		require.NoError(t, err)
		require.Equal(t, want, text)
	}
}

func TestTheJournalsFileHoldsEverythingThatWasSampled(t *testing.T) {
	var file bytes.Buffer
	m := start(t, mock.Config{Journal: &file, NonCanonical: 0.2, Version: "3", Script: mock.Steps(
		mock.Say("first"), mock.Reply{Text: "second with a change", Version: "4", VersionAt: 2},
		mock.Reply{Text: "third is cut", Fault: mock.Fault{Kind: mock.Cut, After: 2}},
	)})
	for range 3 {
		_, _, _ = m.ask(t, user("x"), nil)
	}
	all := m.server.Journal().All()
	require.Len(t, all, 3)
	lines := strings.SplitAfter(strings.TrimSuffix(file.String(), "\n"), "\n")
	require.Len(t, lines, 3)
	for i, line := range lines {
		s, err := mock.ParseSampled([]byte(line))
		require.NoError(t, err)
		require.Equal(t, all[i], s)
		require.Len(t, s.Logprobs, len(s.Completion))
		require.Len(t, s.Versions, len(s.Completion))
	}
	require.Equal(t, []string{"3", "3", "4"}, all[1].Versions[:3])
	require.Len(t, all[2].Completion, 2)
	require.Empty(t, all[2].Finish)
	_, err := mock.ParseSampled([]byte(`{"request":"r","prompt":[1,2`))
	require.ErrorContains(t, err, "journal line")
}

func TestAServerThatIsFullSaysSo(t *testing.T) {
	m := start(t, mock.Config{Concurrency: 1, Script: mock.Always(mock.Reply{Text: "slow", Fault: mock.Fault{Kind: mock.Hang}})})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = m.engine.Generate(ctx, engine.Request{Prompt: []uint32{1}, RoutedFrom: -1}, func(engine.Chunk) error { return nil })
	}()
	require.Eventually(t, func() bool { return m.server.Running() == 1 }, 10*time.Second, time.Millisecond)
	_, _, err := m.ask(t, user("x"), nil)
	require.Equal(t, engine.Overloaded, engine.ClassOf(err))
	cancel()
	<-done
}

func TestRunServesUntilTheContextEnds(t *testing.T) {
	m, err := mock.New(mock.Config{Tokenizer: demo.Tokenizer()})
	require.NoError(t, err)
	ln, err := mock.Listen("127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx, ln) }()
	resp, err := http.Get("http://" + ln.Addr().String() + "/health")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	cancel()
	require.NoError(t, <-done)

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, err = mock.Listen(taken.Addr().String())
	require.ErrorContains(t, err, "--listen")
}

func TestAMockWithoutWhatItNeedsSaysSo(t *testing.T) {
	_, err := mock.New(mock.Config{})
	require.ErrorContains(t, err, "tokenizer")
	_, err = mock.New(mock.Config{Tokenizer: demo.Tokenizer(), StopToken: "<|nobody|>"})
	require.ErrorContains(t, err, "<|nobody|>")
}
