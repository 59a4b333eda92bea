package pool

import "container/list"

// pins remembers which replica a session is on, the most recently used ones.
type pins struct {
	limit int
	order *list.List // of *pin, most recent first
	by    map[string]*list.Element
}

type pin struct {
	session string
	replica *replica
}

func newPins(limit int) *pins {
	return &pins{limit: limit, order: list.New(), by: map[string]*list.Element{}}
}

func (p *pins) get(session string) *replica {
	e := p.by[session]
	if e == nil {
		return nil
	}
	p.order.MoveToFront(e)
	return e.Value.(*pin).replica
}

func (p *pins) set(session string, r *replica) {
	if session == "" {
		return
	}
	if e := p.by[session]; e != nil {
		e.Value.(*pin).replica = r
		p.order.MoveToFront(e)
		return
	}
	p.by[session] = p.order.PushFront(&pin{session, r})
	if p.order.Len() > p.limit {
		p.forget(p.order.Back().Value.(*pin).session)
	}
}

func (p *pins) forget(session string) {
	if e := p.by[session]; e != nil {
		p.order.Remove(e)
		delete(p.by, session)
	}
}
