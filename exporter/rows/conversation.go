package rows

import (
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// conversation fills in what was said up to the turn last of path, in the form
// of OpenAI's chat API. What the log does not hold, such as a definition that
// was lost, leaves the column null: the tokens are the truth, this is for
// people and for trainers that render again.
func (s *Session) conversation(r *Row, path []*turn, last *turn) {
	var said [][]byte
	for _, t := range path {
		c := t.GetConversation()
		if c == nil {
			return
		}
		said = append(said[:min(int(c.Keep), len(said))], c.Messages...)
		if len(c.Answer) > 0 {
			said = append(said, c.Answer)
		}
		if t == last {
			break
		}
	}
	head := last.GetConversation()
	if tools := s.definition(head.Tools); len(tools) > 0 {
		r.ToolsJSON = string(tools)
	}
	var list []message.Message
	if system := s.definition(head.System); len(system) > 0 {
		messages, err := message.ParseList(system)
		if err != nil {
			return
		}
		list = messages
	}
	for _, raw := range said {
		m, err := message.Parse(raw)
		if err != nil {
			return
		}
		list = append(list, m)
	}
	r.MessagesJSON = string(appendOpenAI(nil, list))
}

// definition returns the content that a hash refers to. A value that is no hash
// is content itself.
func (s *Session) definition(ref []byte) []byte {
	if content, ok := s.definitions[string(ref)]; ok {
		return content
	}
	if rawjson.KindOf(ref) == rawjson.Array && rawjson.Valid(ref) == nil {
		return ref
	}
	return nil
}

// appendOpenAI appends messages as a JSON array in the form of OpenAI's chat
// API, with reasoning as reasoning_content. Arguments stay text.
func appendOpenAI(dst []byte, list []message.Message) []byte {
	dst = append(dst, '[')
	for i, m := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendText(append(dst, `{"role":`...), string(m.Role))
		dst = m.Content.AppendJSON(append(dst, `,"content":`...))
		if m.Reasoning != "" {
			dst = rawjson.AppendText(append(dst, `,"reasoning_content":`...), m.Reasoning)
		}
		for i, c := range m.Calls {
			open := `,"tool_calls":[`
			if i > 0 {
				open = ","
			}
			dst = rawjson.AppendText(append(append(dst, open...), `{"id":`...), c.ID)
			dst = rawjson.AppendText(append(dst, `,"type":"function","function":{"name":`...), c.Name)
			dst = rawjson.AppendText(append(dst, `,"arguments":`...), c.Arguments)
			dst = append(dst, "}}"...)
		}
		if len(m.Calls) > 0 {
			dst = append(dst, ']')
		}
		if m.CallID != "" {
			dst = rawjson.AppendText(append(dst, `,"tool_call_id":`...), m.CallID)
		}
		if m.Name != "" {
			dst = rawjson.AppendText(append(dst, `,"name":`...), m.Name)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}
