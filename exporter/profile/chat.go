package profile

import (
	"encoding/json"

	"turnlog.dev/exporter/rows"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// chatRow is a conversation. Arguments of calls are text, as OpenAI has them:
// objects would differ in type from row to row.
type chatRow struct {
	Messages []chatMessage `col:"messages"`
	Tools    string        `col:"tools,null"`
	Reward   *float32      `col:"reward,null"`
}

type chatMessage struct {
	Role             string     `col:"role"`
	Content          string     `col:"content"`
	ReasoningContent string     `col:"reasoning_content,null"`
	ToolCalls        []chatCall `col:"tool_calls,null"`
	ToolCallID       string     `col:"tool_call_id,null"`
	Name             string     `col:"name,null"`
}

type chatCall struct {
	ID       string       `col:"id"`
	Type     string       `col:"type"`
	Function chatFunction `col:"function"`
}

type chatFunction struct {
	Name      string `col:"name" json:"name"`
	Arguments string `col:"arguments" json:"arguments"`
}

// chats gives a row a branch: the conversation of its last row has the others'.
func chats(group []*rows.Row) (list []sized[chatRow], skipped int64) {
	for i, r := range group {
		if i+1 < len(group) && group[i+1].SessionID == r.SessionID && group[i+1].BranchID == r.BranchID {
			continue
		}
		messages := conversation(r.MessagesJSON)
		if len(messages) == 0 {
			skipped++
			continue
		}
		list = append(list, sized[chatRow]{&chatRow{Messages: messages, Tools: r.ToolsJSON, Reward: r.Reward}, int64(r.Length)})
	}
	return list, skipped
}

// conversation reads messages in OpenAI's form; nil when there are none.
func conversation(raw string) []chatMessage {
	if raw == "" {
		return nil
	}
	var list []struct {
		Role             string
		Content          json.RawMessage
		ReasoningContent string `json:"reasoning_content"`
		ToolCalls        []struct {
			ID       string
			Function chatFunction
		} `json:"tool_calls"`
		ToolCallID string `json:"tool_call_id"`
		Name       string
	}
	if json.Unmarshal([]byte(raw), &list) != nil {
		return nil
	}
	var out []chatMessage
	for _, m := range list {
		content, err := message.ParseContent(m.Content)
		if err != nil && rawjson.KindOf(m.Content) != rawjson.Invalid {
			return nil
		}
		c := chatMessage{
			Role: m.Role, Content: content.String(), ReasoningContent: m.ReasoningContent,
			ToolCallID: m.ToolCallID, Name: m.Name,
		}
		for _, call := range m.ToolCalls {
			c.ToolCalls = append(c.ToolCalls, chatCall{call.ID, "function", call.Function})
		}
		out = append(out, c)
	}
	return out
}
