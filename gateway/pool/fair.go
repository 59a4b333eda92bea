package pool

// waiter is a request that waits for a slot.
type waiter struct {
	session string
	tried   map[*replica]bool
	prompt  []uint32
	// granted carries the replica whose slot it got; its buffer of one lets the
	// granting side go on.
	granted chan slot
	// in is the queue that it stands in; gone is set when it left.
	in   *fair
	gone bool
}

// fair is a queue that serves sessions in turn, so that one with a hundred
// requests does not keep the others waiting. The zero value is empty.
type fair struct {
	turns []string // sessions with waiters, the next one first
	by    map[string][]*waiter
	n     int // waiters
}

func (f *fair) push(w *waiter) {
	if f.by == nil {
		f.by = map[string][]*waiter{}
	}
	if len(f.by[w.session]) == 0 {
		f.turns = append(f.turns, w.session)
	}
	f.by[w.session] = append(f.by[w.session], w)
	w.in = f
	f.n++
}

// leave takes w out, wherever it stands.
func (w *waiter) leave() {
	w.gone = true
	if w.in != nil {
		w.in.n--
	}
}

// first returns the waiter whose turn it is among those that r may serve,
// without taking it, or nil.
func (f *fair) first(r *replica) *waiter {
	for i := 0; i < len(f.turns); {
		s := f.turns[i]
		q := f.by[s]
		for len(q) > 0 && q[0].gone {
			q = q[1:]
		}
		f.by[s] = q
		if len(q) == 0 {
			delete(f.by, s)
			f.turns = append(f.turns[:i], f.turns[i+1:]...)
			continue
		}
		if !q[0].tried[r] {
			return q[0]
		}
		i++
	}
	return nil
}

// take removes what first returned; its session goes to the end of the turns.
func (f *fair) take(w *waiter) {
	q := f.by[w.session][1:]
	w.in = nil
	f.n--
	for i, s := range f.turns {
		if s == w.session {
			f.turns = append(f.turns[:i], f.turns[i+1:]...)
			break
		}
	}
	if len(q) == 0 {
		delete(f.by, w.session)
		return
	}
	f.by[w.session] = q
	f.turns = append(f.turns, w.session)
}

// drain takes all waiters, in the order of their turns.
func (f *fair) drain() []*waiter {
	var out []*waiter
	for w := f.first(nil); w != nil; w = f.first(nil) {
		f.take(w)
		out = append(out, w)
	}
	return out
}
