package mock

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"

	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
)

// Sampled is what the model sampled for one request: the truth that a log is
// compared with.
type Sampled struct {
	Request string // the request's id, as the client gave it
	Wire    string
	// Prompt is what the answer was computed from.
	Prompt     []uint32
	Completion []uint32
	Logprobs   []float32
	// Versions names the weight version of every token.
	Versions []string
	// Finish is stop, length or abort; empty where the answer was not finished.
	Finish string
}

// kept is how many answers a journal keeps in memory. A file gets them all.
const kept = 4096

// Journal keeps what was sampled, in the order in which the answers ended: the
// last 4,096 answers in memory, all of them in a file. It is safe for concurrent
// use.
type Journal struct {
	mu  sync.Mutex
	all []Sampled
	out io.Writer
}

func (j *Journal) append(s Sampled) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.all = append(j.all, s); len(j.all) > 2*kept {
		j.all = append([]Sampled(nil), j.all[len(j.all)-kept:]...)
	}
	if j.out == nil {
		return nil
	}
	// One write for one line: what is cut off by a crash is the last line.
	if _, err := j.out.Write(appendSampled(nil, s)); err != nil {
		return fmt.Errorf("mock: write journal: %w", err)
	}
	return nil
}

// All returns the last answers, all of them up to 4,096.
func (j *Journal) All() []Sampled {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]Sampled(nil), j.all[max(0, len(j.all)-kept):]...)
}

// appendSampled writes one line of JSON: request, wire, prompt, completion,
// logprobs (the bits of each float32), versions ([count, label] runs), finish.
func appendSampled(b []byte, s Sampled) []byte {
	b = rawjson.AppendText(append(b, `{"request":`...), s.Request)
	b = rawjson.AppendText(append(b, `,"wire":`...), s.Wire)
	b = wire.AppendIDs(append(b, `,"prompt":`...), s.Prompt)
	b = wire.AppendIDs(append(b, `,"completion":`...), s.Completion)
	b = append(b, `,"logprobs":[`...)
	for i, f := range s.Logprobs {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(math.Float32bits(f)), 10)
	}
	b = append(b, `],"versions":[`...)
	for start := 0; start < len(s.Versions); {
		end := start
		for end < len(s.Versions) && s.Versions[end] == s.Versions[start] {
			end++
		}
		if start > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, '['), int64(end-start), 10)
		b = append(rawjson.AppendText(append(b, ','), s.Versions[start]), ']')
		start = end
	}
	b = rawjson.AppendText(append(b, `],"finish":`...), s.Finish)
	return append(b, '}', '\n')
}

// ParseSampled reads one line of a journal's file.
func ParseSampled(line []byte) (Sampled, error) {
	var s Sampled
	err := rawjson.Valid(line)
	for k, v := range rawjson.Members(line) {
		if err != nil {
			break
		}
		switch k {
		case "request":
			s.Request = rawjson.Text(v)
		case "wire":
			s.Wire = rawjson.Text(v)
		case "finish":
			s.Finish = rawjson.Text(v)
		case "prompt":
			s.Prompt, err = wire.IDs(nil, v)
		case "completion":
			s.Completion, err = wire.IDs(nil, v)
		case "logprobs":
			var bits []uint32
			bits, err = wire.IDs(nil, v)
			for _, b := range bits {
				s.Logprobs = append(s.Logprobs, math.Float32frombits(b))
			}
		case "versions":
			for run := range rawjson.Elements(v) {
				count, label := 0, ""
				for e := range rawjson.Elements(run) {
					if rawjson.KindOf(e) == rawjson.String {
						label = rawjson.Text(e)
					} else if count, err = wire.Int(e); err != nil {
						break
					}
				}
				for range count {
					s.Versions = append(s.Versions, label)
				}
			}
		}
	}
	if err != nil {
		return Sampled{}, fmt.Errorf("mock: journal line: %w", err)
	}
	return s, nil
}
