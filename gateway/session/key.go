package session

import (
	"encoding/binary"
	"hash/maphash"

	"turnlog.dev/schema/message"
)

// key stands for a message, or for a history, in the maps of this process. It is
// 128 bits of a hash that has a secret of its own in every process: nobody can
// look for two texts with the same key, and by chance there are none. It costs a
// fraction of a hash that could leave the process; whoever repeats an old history
// in other words has all of it hashed.
type key struct{ a, b uint64 }

var secrets = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func keyOf(b []byte) key {
	return key{maphash.Bytes(secrets[0], b), maphash.Bytes(secrets[1], b)}
}

// then is the history k, continued by a message.
func (k key) then(next key) key {
	var b [32]byte
	next.put(k.put(b[:0]))
	return keyOf(b[:])
}

func (k key) put(dst []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(dst, k.a), k.b)
}

// keyOfMessage is the key of what a message means to a model. What a client may
// change without changing what the model reads does not count: a text and a list
// of one text part are the same, null content and empty text are the same, and an
// assistant's calls count by their ids alone, since clients respell arguments but
// return ids. Reasoning does not count either: most clients drop it. Match compares
// both itself and names the difference.
func keyOfMessage(m message.Message) key {
	b := putText(make([]byte, 0, 256), 'r', string(m.Role))
	b = putContent(b, m.Content)
	for _, c := range m.Calls {
		b = putText(b, 'c', c.ID)
	}
	b = putText(b, 'i', m.CallID)
	if m.Role != message.Tool {
		b = putText(b, 'n', m.Name)
	}
	return keyOf(b)
}

func putContent(dst []byte, c message.Content) []byte {
	if plain(c) {
		return putText(dst, 't', c.String())
	}
	for _, p := range c.Parts {
		if p.Raw != nil {
			dst = keyOf(p.Raw).put(append(dst, 'f'))
		} else {
			dst = putText(dst, 'p', p.Text)
		}
	}
	return dst
}

// putText appends what a text is, and its key.
func putText(dst []byte, what byte, s string) []byte {
	return key{maphash.String(secrets[0], s), maphash.String(secrets[1], s)}.put(append(dst, what))
}
