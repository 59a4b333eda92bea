// Package demo is the bundled agent of "turnlog demo": a small tool-using agent
// that drives a gateway over HTTP as any agent would, with several sessions of
// one group, and closes them with rewards.
package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Agent talks to one gateway.
type Agent struct {
	// URL is the gateway's, without a path.
	URL      string
	AdminKey string
	HTTP     *http.Client
}

// Session is a finished session of the demo.
type Session struct {
	ID     string
	Turns  int
	Calls  int
	Reward float64
}

// task is what every session of the demo is asked.
const task = "How many lines do notes.txt and todo.txt have together? Look, then answer."

// files are what the agent's tool can read.
var files = map[string]string{
	"notes.txt": "first\nsecond\nthird\n",
	"todo.txt":  "buy milk\nwrite tests\n",
}

const tools = `[{"type":"function","function":{"name":"read_file","description":"Read a text file.",` +
	`"parameters":{"type":"object","properties":{"path":{"type":"string","description":"Name of the file."}},"required":["path"]}}},` +
	`{"type":"function","function":{"name":"list_files","description":"List the files.","parameters":{"type":"object","properties":{}}}}]`

// maxTurns ends a session whose model never stops calling tools.
const maxTurns = 8

// Run opens n sessions of one group, works on the task in each at the same
// time, and closes them. The error is the first that occurred.
func (a *Agent) Run(ctx context.Context, run, group string, n int) ([]Session, error) {
	out := make([]Session, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { out[i], errs[i] = a.session(ctx, run, group, i, n) })
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

type message struct {
	Role       string          `json:"role"`
	Content    *string         `json:"content"`
	Reasoning  string          `json:"reasoning_content,omitempty"`
	ToolCalls  json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
}

func (a *Agent) session(ctx context.Context, run, group string, index, size int) (s Session, err error) {
	var opened struct {
		Session string `json:"session"`
		Key     string `json:"key"`
	}
	err = a.post(ctx, "/sessions", a.AdminKey, map[string]any{
		"run": run, "group": group, "index": index, "group_size": size, "task": "count-lines", "data_source": "demo",
	}, &opened)
	if err != nil {
		return s, err
	}
	s.ID = opened.Session
	text := func(s string) *string { return &s }
	history := []message{
		{Role: "system", Content: text("You are a careful assistant with tools.")},
		{Role: "user", Content: text(task)},
	}
	for s.Turns < maxTurns {
		var reply struct {
			Choices []struct {
				Message message `json:"message"`
			} `json:"choices"`
		}
		err := a.post(ctx, "/v1/chat/completions", opened.Key, map[string]any{
			"model": "demo", "messages": history, "tools": json.RawMessage(tools), "temperature": 1.0, "max_tokens": 256, "seed": index,
		}, &reply)
		if err != nil {
			return s, fmt.Errorf("session %s: %w", s.ID, err)
		}
		if len(reply.Choices) == 0 {
			return s, fmt.Errorf("session %s: an answer without choices", s.ID)
		}
		s.Turns++
		answer := reply.Choices[0].Message
		history = append(history, answer)
		var calls []struct {
			ID       string `json:"id"`
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		}
		if len(answer.ToolCalls) > 0 {
			if err := json.Unmarshal(answer.ToolCalls, &calls); err != nil {
				return s, fmt.Errorf("session %s: tool calls: %w", s.ID, err)
			}
		}
		if len(calls) == 0 {
			break
		}
		for _, c := range calls {
			s.Calls++
			history = append(history, message{Role: "tool", ToolCallID: c.ID, Content: text(call(c.Function.Name, c.Function.Arguments))})
		}
	}
	// The grader of the demo likes sessions that looked before they answered.
	if s.Calls > 0 {
		s.Reward = 1 / float64(1+index%2)
	}
	return s, a.post(ctx, "/sessions/"+s.ID+"/close", a.AdminKey, map[string]any{
		"reward": s.Reward, "components": map[string]any{"used_tools": s.Calls > 0},
	}, nil)
}

// call runs a tool.
func call(name, arguments string) string {
	switch name {
	case "list_files":
		return "notes.txt\ntodo.txt"
	case "read_file":
		var in struct {
			Path string `json:"path"`
		}
		if err := json.Unmarshal([]byte(arguments), &in); err != nil {
			return "error: the arguments are not valid JSON: " + err.Error()
		}
		if text, ok := files[in.Path]; ok {
			return text
		}
		return fmt.Sprintf("error: no file %q", in.Path)
	}
	return fmt.Sprintf("error: no tool %q", name)
}

func (a *Agent) post(ctx context.Context, path, key string, body, into any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL+path, bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := a.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("demo: %s: %w", path, err)
	}
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("demo: %s: %s: %s", path, res.Status, strings.TrimSpace(string(text)))
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("demo: %s: %w", path, err)
	}
	return nil
}
