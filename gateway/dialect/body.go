package dialect

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"
	"strconv"
	"strings"

	"turnlog.dev/gateway"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
)

// Protocol is what tells the bodies of one protocol from those of another.
type Protocol struct {
	// Name is how the dialect is called in the log, Translation the version of
	// what it does.
	Name        string
	Translation uint32
	// Sampling maps the protocol's parameters to the gateway's names.
	Sampling map[string]string
	// Recorded are the other members that the log holds in the canonical form:
	// all that make the conversation.
	Recorded []string
}

// Body is a request body while it is read: what every protocol does alike.
type Body struct {
	Req    gateway.Request
	Tools  []message.Definition
	Choice Choice

	params  Params
	other   []rawjson.Set
	leftOut []string
}

// Choice is which tools the client lets the model call.
type Choice struct {
	gateway.ToolChoice
	// None: no call. Allowed, if not nil, are the only tools that may be called.
	None    bool
	Allowed []string
}

// longMember bounds what is recorded of a member that nobody reads.
const longMember = 4096

// Read walks a body and calls member with all but its sampling parameters. The
// error is a *gateway.Error of kind Invalid. What is not recorded in a form of
// its own is recorded as it came, known or not.
func (b *Body) Read(p *Protocol, body []byte, member func(key string, value []byte) error) error {
	if err := Object(body); err != nil {
		return err
	}
	digest := newBodyHash()
	for k, v := range rawjson.Members(body) {
		digest.add(k, v)
		if name, ok := p.Sampling[k]; ok {
			b.params.Set(name, v)
			continue
		}
		var err error
		switch k {
		case "model":
			b.Req.Model, err = Text(k, v)
		case "stream":
			b.Req.Stream, err = Bool(k, v)
		default:
			if err = member(k, v); err == nil && !slices.Contains(p.Recorded, k) {
				b.record(k, v)
			}
		}
		if err != nil {
			return err
		}
	}
	b.Req.Dialect, b.Req.Translation = p.Name, p.Translation
	b.Req.BodyHash = digest.sum()
	return nil
}

func (b *Body) record(key string, value []byte) {
	if len(value) > longMember {
		sum := sha256.Sum256(value)
		value = append(hex.AppendEncode([]byte(`{"sha256":"`), sum[:]), `","bytes":`+strconv.Itoa(len(value))+`}`...)
	}
	b.other = append(b.other, rawjson.Set{Key: key, Value: value})
}

// LeaveOut says that a part of the conversation of this type is not shown to
// the model, which the log then says too.
func (b *Body) LeaveOut(typ string) {
	if !slices.Contains(b.leftOut, typ) {
		b.leftOut = append(b.leftOut, typ)
	}
}

// Finish completes the request, whose conversation are the given messages.
func (b *Body) Finish(messages []message.Message) (err error) {
	if b.leftOut != nil {
		list := []byte{'['}
		for i, typ := range b.leftOut {
			if i > 0 {
				list = append(list, ',')
			}
			list = rawjson.AppendText(list, typ)
		}
		b.record("left_out", append(list, ']'))
	}
	if b.other != nil {
		b.Req.Other = rawjson.Splice(nil, []byte("{}"), b.other...)
	}
	b.Req.Sampling = b.params.Object()
	if _, err := gateway.ParseSampling(b.Req.Sampling); err != nil {
		return err
	}
	tools := b.Tools
	if b.Choice.Allowed != nil {
		tools = slices.DeleteFunc(slices.Clone(tools), func(t message.Definition) bool { return !slices.Contains(b.Choice.Allowed, t.Name) })
	}
	if b.Choice.None {
		tools = nil
	}
	if len(tools) > 0 || b.Choice.Required {
		b.Req.ToolChoice = b.Choice.ToolChoice
	}
	if name := b.Req.ToolChoice.Name; name != "" && !slices.ContainsFunc(tools, func(t message.Definition) bool { return t.Name == name }) {
		return gateway.Invalidf("tool_choice", "tool_choice names the tool %q, which tools does not offer", name)
	}
	if b.Req.ToolChoice.Required && len(tools) == 0 {
		return gateway.Invalidf("tool_choice", "tool_choice asks for a call, and there is no tool that the model can call; give tools, or use auto")
	}
	// One token in answer to one message is asked for to try something out.
	if limit, ok := b.params.Has("max_tokens"); ok && len(messages) == 1 && string(bytes.TrimSpace(limit)) == "1" {
		b.Req.Class = Probe
	}
	b.Req.Conversation = message.Split(messages, tools)
	return nil
}

// Object checks that a request body is a JSON object.
func Object(body []byte) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return gateway.Invalidf("", "the body is empty; it must be a JSON object")
	}
	if err := rawjson.Valid(body); err != nil {
		return gateway.Invalidf("", "the body is not valid JSON: %s", strings.TrimPrefix(err.Error(), "rawjson: "))
	}
	if kind := rawjson.KindOf(body); kind != rawjson.Object {
		return gateway.Invalidf("", "the body is %s; it must be a JSON object", kind)
	}
	return nil
}

// bodyHash identifies a request whatever way of delivery it asks for. It is a
// sha256 over the members of a body, in order, but for "stream" and
// "stream_options".
type bodyHash struct{ h hash.Hash }

func newBodyHash() bodyHash { return bodyHash{sha256.New()} }

func (b bodyHash) add(key string, value []byte) {
	if key == "stream" || key == "stream_options" {
		return
	}
	var lengths [16]byte
	binary.LittleEndian.PutUint64(lengths[:], uint64(len(key)))
	binary.LittleEndian.PutUint64(lengths[8:], uint64(len(value)))
	b.h.Write(lengths[:])
	b.h.Write([]byte(key))
	b.h.Write(value)
}

func (b bodyHash) sum() []byte { return b.h.Sum(nil) }
