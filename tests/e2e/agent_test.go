package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// agent makes sessions against a gateway that may die at any time, and keeps a
// journal of the answers that it was given.
type agent struct {
	url  string
	key  string // admin
	http *http.Client

	mu      sync.Mutex
	given   []given
	closed  []string
	retries int
}

// given is an answer that arrived whole.
type given struct {
	session, turn string
	content       string
	calls         []string // ids
}

type chatMessage struct {
	Role       string     `json:"role"`
	Content    *string    `json:"content"`
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

var errAgain = errors.New("try again")

// session runs one session to its end, however often the gateway dies.
func (a *agent) session(ctx context.Context, rng *rand.Rand, group string, index, size int) error {
	var opened struct{ Session, Key string }
	err := a.until(ctx, func() error {
		return a.post(ctx, "/sessions", a.key, map[string]any{
			"run": "kill", "group": group, "index": index, "group_size": size, "metadata": map[string]any{"seed": index},
		}, nil, &opened)
	})
	if err != nil {
		return err
	}
	text := func(s string) *string { return &s }
	history := []chatMessage{
		{Role: "system", Content: text("You work on task " + group + ".")},
		{Role: "user", Content: text(fmt.Sprintf("Begin, sample %d.", index))},
	}
	for turn := range 2 + rng.IntN(4) {
		key := ""
		if rng.IntN(2) == 0 {
			key = fmt.Sprintf("%s-%d-%d", group, index, turn)
		}
		stream := rng.IntN(2) == 0
		var answer chatMessage
		var id string
		err := a.until(ctx, func() (err error) {
			answer, id, err = a.chat(ctx, opened.Key, history, int(rng.Uint32()>>1), stream, key)
			return err
		})
		if err != nil {
			return err
		}
		g := given{session: opened.Session, turn: id}
		if answer.Content != nil {
			g.content = *answer.Content
		}
		for _, c := range answer.ToolCalls {
			g.calls = append(g.calls, c.ID)
		}
		a.mu.Lock()
		a.given = append(a.given, g)
		a.mu.Unlock()
		history = append(history, answer)
		for _, c := range answer.ToolCalls {
			history = append(history, chatMessage{Role: "tool", ToolCallID: c.ID, Content: text("result of " + c.Function.Name)})
		}
		if len(answer.ToolCalls) == 0 {
			history = append(history, chatMessage{Role: "user", Content: text(fmt.Sprintf("Go on, step %d.", turn))})
		}
	}
	err = a.until(ctx, func() error {
		return a.post(ctx, "/sessions/"+opened.Session+"/close", a.key, map[string]any{"reward": float64(index)}, nil, nil)
	})
	if err == nil {
		a.mu.Lock()
		a.closed = append(a.closed, opened.Session)
		a.mu.Unlock()
	}
	return err
}

// until repeats a request that did not get an answer.
func (a *agent) until(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !errors.Is(err, errAgain) {
			return err
		}
		a.mu.Lock()
		a.retries++
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

const agentTools = `[{"type":"function","function":{"name":"read_file","parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}},` +
	`{"type":"function","function":{"name":"search","parameters":{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}}}]`

// chat makes one model call and returns its answer once it is whole.
func (a *agent) chat(ctx context.Context, key string, history []chatMessage, seed int, stream bool, idempotency string) (m chatMessage, turn string, err error) {
	body := map[string]any{
		"model": "any", "messages": history, "tools": json.RawMessage(agentTools), "seed": seed, "max_tokens": 200,
	}
	header := http.Header{}
	if idempotency != "" {
		header.Set("Idempotency-Key", idempotency)
		body["seed"] = 7 // the same body each time
		body["stream"] = stream
	}
	if !stream {
		var reply struct {
			ID      string
			Choices []struct{ Message chatMessage }
		}
		if err := a.post(ctx, "/v1/chat/completions", key, body, header, &reply); err != nil {
			return m, "", err
		}
		return reply.Choices[0].Message, strings.TrimPrefix(reply.ID, "chatcmpl-"), nil
	}
	body["stream"] = true
	res, err := a.send(ctx, "/v1/chat/completions", key, body, header)
	if err != nil {
		return m, "", err
	}
	defer res.Body.Close()
	return readStream(res.Body)
}

// readStream puts the chunks of a stream together. A stream without [DONE] was
// no answer.
func readStream(r io.Reader) (m chatMessage, turn string, err error) {
	m = chatMessage{Role: "assistant"}
	var content strings.Builder
	for s := bufio.NewScanner(r); s.Scan(); {
		data, ok := strings.CutPrefix(s.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			if text := content.String(); text != "" || len(m.ToolCalls) == 0 {
				m.Content = &text
			}
			return m, turn, nil
		}
		var chunk struct {
			ID      string
			Error   *struct{ Message string }
			Choices []struct {
				Delta struct {
					Content   string
					ToolCalls []chatCall `json:"tool_calls"`
				}
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return m, "", fmt.Errorf("%w: %w", errAgain, err)
		}
		if chunk.Error != nil {
			return m, "", fmt.Errorf("%w: %s", errAgain, chunk.Error.Message)
		}
		turn = strings.TrimPrefix(chunk.ID, "chatcmpl-")
		for _, c := range chunk.Choices {
			content.WriteString(c.Delta.Content)
			m.ToolCalls = append(m.ToolCalls, c.Delta.ToolCalls...)
		}
	}
	return m, "", fmt.Errorf("%w: the stream ended without [DONE]", errAgain)
}

func (a *agent) post(ctx context.Context, path, key string, body any, header http.Header, into any) error {
	res, err := a.send(ctx, path, key, body, header)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	return nil
}

// send returns a response of status 2xx. What a dying or overloaded gateway
// says is errAgain; everything else is final.
func (a *agent) send(ctx context.Context, path, key string, body any, header http.Header) (*http.Response, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := a.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAgain, err)
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	err = fmt.Errorf("%s: %s: %s", path, res.Status, text)
	if res.StatusCode >= 500 {
		err = fmt.Errorf("%w: %w", errAgain, err)
	}
	return nil, err
}

// get asks for something with the admin key.
func (a *agent) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.key)
	return a.http.Do(req)
}

func decode(res *http.Response, into any) error {
	defer res.Body.Close()
	return json.NewDecoder(res.Body).Decode(into)
}
