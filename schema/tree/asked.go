package tree

import "bytes"

// asked finds turns by the request that they answered.
type asked struct {
	byKey     map[string]*Turn   // by idempotency key, the first
	byRequest map[string][]*Turn // by the client's id of the request
	byBody    map[string][]*Turn // by the hash of the body
}

func newAsked() asked {
	return asked{map[string]*Turn{}, map[string][]*Turn{}, map[string][]*Turn{}}
}

func (a asked) add(t *Turn) {
	r := t.Committed.GetRequest()
	if key := r.GetIdempotencyKey(); key != "" && a.byKey[key] == nil {
		a.byKey[key] = t
	}
	if id := r.GetRequestId(); id != "" {
		a.byRequest[id] = append(a.byRequest[id], t)
	}
	if body := r.GetBodyHash(); len(body) > 0 {
		a.byBody[string(body)] = append(a.byBody[string(body)], t)
	}
}

// WithKey returns the turn that answered the request with an idempotency key,
// or nil.
func (t *Tree) WithKey(key string) *Turn { return t.asked.byKey[key] }

// WithRequest returns the turn that answered the request with an id and the
// hash of a body, or nil.
func (t *Tree) WithRequest(id string, body []byte) *Turn {
	for _, n := range t.asked.byRequest[id] {
		if bytes.Equal(n.Committed.GetRequest().GetBodyHash(), body) {
			return n
		}
	}
	return nil
}

// WithBody returns the turns that answered requests with the hash of a body, in
// order.
func (t *Tree) WithBody(body []byte) []*Turn { return t.asked.byBody[string(body)] }
