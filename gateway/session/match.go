package session

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/message"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/schema/tree"
)

// Decisions about a request, as they stand in the log.
const (
	Extend = "extend"
	Branch = "branch"
	Root   = "root"
)

// Reasons for a branch or a root.
const (
	FirstTurn        = "first_turn"
	HeadChanged      = "head_changed"
	NewConversation  = "new_conversation"
	Resample         = "resample"          // the same history again
	Rewind           = "rewind"            // an earlier turn, continued otherwise
	HistoryRewritten = "history_rewritten" // answers in it that are not ours
	TemplateRewrites = "template_rewrites" // the template does not append
	ModelChanged     = "model_changed"     // another tokenizer or template
	KwargsChanged    = "kwargs_changed"    // other arguments of the template
	PolicyChanged    = "policy_changed"    // another history policy
	TextParent       = "text_parent"       // the parent's ids are not known
)

// Tolerances are the differences between an echoed history and the recorded
// one that do not make it another history; and TemplateOmits: the model's
// template leaves something out that a new message says.
const (
	TrailingSpace      = "trailing_space"
	ContentForm        = "content_form" // null, text or list
	RespelledArguments = "respelled_arguments"
	DroppedReasoning   = "dropped_reasoning"
	ChangedReasoning   = "changed_reasoning"
	ResultOrder        = "result_order"
	TemplateOmits      = "template_omits"
)

// Match is where a request belongs in the tree.
type Match struct {
	Decision, Reason string
	// Parent is nil for a root.
	Parent *tree.Turn
	// Answer is what the parent answered.
	Answer message.Message
	// Keep is how many messages of the parent's conversation, its answer
	// included, the request repeats.
	Keep int
	// Added are the messages after those.
	Added      []message.Message
	Tolerances []string
	// Ambiguous: other turns gave the same answer to the same history.
	Ambiguous bool
	// Rewritten: the client changed a tool call; the recorded one counts. The
	// turns are those whose answers it changed and which no turn before names.
	Rewritten      bool
	RewrittenTurns []string
	// Head is the parent's, and Thought says that there is thinking in its
	// conversation, the answer included.
	Head    message.Head
	Thought bool

	// keys are those of Added that were taken.
	keys []key
}

// node is what the index knows of a turn.
type node struct {
	turn   *tree.Turn
	parent *node
	head   message.Hash
	keep   int
	// keys are those of the messages that the turn added as far as they were known before.
	keys []key
	// chains are the histories after each of those, then after the answer: as
	// many of them as somebody has asked for. A session in which every request
	// continues the latest turn never asks.
	chains []key
	// thought: there is thinking in the conversation, the answer included.
	thought bool
}

// count is the number of messages of the conversation, the answer included.
func (n *node) count() int { return n.keep + len(n.turn.Added) + 1 }

// add indexes a turn that has just been folded. said is what its event was made
// of, where that is known.
func (s *Session) add(t *tree.Turn, said *said) error {
	conv := t.Committed.GetConversation()
	n := &node{turn: t, parent: s.nodes[t.Parent], keep: int(conv.GetKeep())}
	copy(n.head[:], conv.GetHead())
	if said != nil && len(said.match.Added) != len(conv.GetMessages()) {
		said = nil
	}
	added := make([]message.Message, len(conv.GetMessages()))
	var err error
	for i, raw := range conv.GetMessages() {
		if added[i], err = said.message(i, raw); err != nil {
			return err
		}
	}
	answer, err := said.message(len(added), conv.GetAnswer())
	if err != nil {
		return err
	}
	t.Hold(added, answer)
	n.keys = said.keys()
	thinks := func(m message.Message) bool { return m.Reasoning != "" }
	n.thought = n.parent != nil && n.parent.thought || thinks(answer) || slices.ContainsFunc(added, thinks)

	if s.heads[n.head] == nil {
		h, err := readHead(conv, s.tree)
		if err != nil {
			return err
		}
		s.heads[n.head] = h
		for _, d := range conv.GetDefinitions() {
			s.index += len(d.GetContent())
		}
	}
	for _, c := range answer.Calls {
		if c.ModelID != "" {
			s.modelIDs[c.ID] = c.ModelID
		}
	}
	if len(s.nodes) == 0 {
		s.index += indexBase
	}
	s.index += indexTurn // the tree has counted the texts
	s.nodes[t] = n
	s.counts[n.count()]++
	return nil
}

// said is what a turn's event was made of: the messages of its conversation that
// are new, the answer last. Reading them again from the event would give the
// same.
type said struct {
	match  Match
	answer message.Message
}

// message returns the message i, which the event holds as raw.
func (d *said) message(i int, raw []byte) (message.Message, error) {
	if d == nil {
		return message.Parse(raw)
	}
	m := d.answer
	if i < len(d.match.Added) {
		m = d.match.Added[i]
	}
	if !m.Durable() {
		return message.Parse(bytes.Clone(raw))
	}
	m.Turn = ""
	return m, nil
}

func (d *said) keys() []key {
	if d == nil {
		return nil
	}
	return slices.Clone(d.match.keys)
}

// key is that of the message i of those added, the answer last.
func (n *node) key(i int) key {
	switch {
	case i == len(n.turn.Added):
		return keyOfMessage(loose(n.turn.Answer))
	case i < len(n.keys) && n.keys[i] != key{}:
		return n.keys[i]
	}
	return keyOfMessage(loose(n.turn.Added[i]))
}

// start is the history that is nothing but a head.
func start(head message.Hash) key { return keyOf(head[:]) }

// chainAt is the history after the first k messages of the conversation.
func (n *node) chainAt(k int) key {
	for k <= n.keep {
		if n.parent == nil {
			return start(n.head)
		}
		n = n.parent
	}
	for i := len(n.chains); i < k-n.keep; i++ {
		var before key
		switch {
		case i > 0:
			before = n.chains[i-1]
		case n.parent != nil:
			before = n.parent.chainAt(n.keep)
		default:
			before = start(n.head)
		}
		n.chains = append(n.chains, before.then(n.key(i)))
	}
	return n.chains[k-n.keep-1]
}

// byHistory finds turns by a history of theirs.
type byHistory struct {
	m map[key][]*node
	// known are the turns in it, of those of the session.
	known int
}

// prompted returns the turns that answered a history.
func (s *Session) prompted(history key) []*node {
	return s.find(&s.prompts, history, func(n *node) int { return n.count() - 1 })
}

// answered returns the turns whose history, the answer included, is this one.
func (s *Session) answered(history key) []*node {
	return s.find(&s.answers, history, (*node).count)
}

// find brings an index up to date, in which turns stand by their history after
// so many messages as place says, and looks up a history.
func (s *Session) find(in *byHistory, history key, place func(*node) int) []*node {
	for ; in.known < len(s.tree.Turns); in.known++ {
		n := s.nodes[s.tree.Turns[in.known]]
		at := n.chainAt(place(n))
		in.m[at] = append(in.m[at], n)
	}
	return in.m[history]
}

// walk calls fn with the messages of the conversation, the answer first and
// then backwards, until fn says no, and reports whether it never did. Each comes
// with the turn that answered it, or nil. Backwards needs no list of the turns
// on the way: a turn's work must not grow with the session.
func (n *node) walk(fn func(k int, m message.Message, by *node) bool) bool {
	until := n.count()
	for p := n; p != nil; p = p.parent {
		for k := until - 1; k >= p.keep; k-- {
			m, by := p.turn.Answer, p
			if i := k - p.keep; i < len(p.turn.Added) {
				m, by = p.turn.Added[i], nil
			}
			if !fn(k, m, by) {
				return false
			}
		}
		// What the turn before adds counts up to where this one took over.
		until = min(until, p.keep)
	}
	return true
}

// history is a request's history. Each message's key is taken at most once.
type history struct {
	head     message.Head
	messages []message.Message
	keys     []key // of messages, zero for those that were not taken
}

func (h *history) key(i int) key {
	if h.keys == nil {
		h.keys = make([]key, len(h.messages))
	}
	if h.keys[i] == (key{}) {
		h.keys[i] = keyOfMessage(loose(h.messages[i]))
	}
	return h.keys[i]
}

// Match finds the turn that a request continues: the one whose history, answer
// included, is the longest beginning of the request's. known is false if the
// request holds an answer beyond that: catching up may find its turn.
func (s *Session) Match(c message.Conversation) (m Match, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &history{head: c.Head, messages: c.Messages}
	parent := s.latest(h)
	if parent != nil {
		m.Keep = parent.count()
	} else {
		parent = s.search(h, &m)
	}
	m.Added = h.messages[m.Keep:]
	known = !slices.ContainsFunc(m.Added, isAnswer)
	if parent != nil {
		m.Parent, m.Answer, m.Thought = parent.turn, parent.turn.Answer, parent.thought
		if h := s.heads[parent.head]; h != nil {
			m.Head = message.Head{System: h.system, Tools: h.tools}
		}
		named := len(m.Tolerances)
		parent.walk(func(k int, recorded message.Message, by *node) bool {
			if m.compare(recorded, h.messages[k]) {
				m.Rewritten = true
				if by != nil && !parent.names(by.turn.ID) {
					m.RewrittenTurns = append(m.RewrittenTurns, by.turn.ID)
				}
			}
			return true
		})
		slices.Sort(m.Tolerances[named:])
		slices.Reverse(m.RewrittenTurns)
	}
	m.decide(s, parent, h, known)
	if h.keys != nil {
		m.keys = h.keys[m.Keep:]
	}
	return m, known
}

// names reports whether the turn, or one before it, names one as rewritten.
func (n *node) names(turn string) bool {
	for p := n; p != nil; p = p.parent {
		if slices.Contains(p.turn.Committed.GetMatch().GetRewrittenTurns(), turn) {
			return true
		}
	}
	return false
}

func isAnswer(m message.Message) bool { return m.Role == message.Assistant }

// latest returns the turn that was committed last if the request plainly
// continues it. It is what search would find: comparing texts costs less
// than hashing them, and a turn's work should depend on what is new.
func (s *Session) latest(h *history) *node {
	turns := s.tree.Turns
	if len(turns) == 0 {
		return nil
	}
	n := s.nodes[turns[len(turns)-1]]
	k := n.count()
	if k > len(h.messages) || slices.ContainsFunc(h.messages[k:], isAnswer) || !s.heads[n.head].same(h.head) {
		return nil
	}
	if named := h.messages[k-1].Turn; named != "" && named != n.turn.ID {
		return nil
	}
	if !n.walk(func(k int, recorded message.Message, _ *node) bool { return alike(recorded, h.messages[k]) }) {
		return nil
	}
	// Equal turns have as many messages.
	if s.counts[k] > 1 && len(s.answered(n.chainAt(k))) > 1 {
		return nil
	}
	return n
}

// search returns the turn that the request continues, by the keys of its
// history.
func (s *Session) search(h *history, m *Match) (parent *node) {
	last := len(h.messages) // after the last answer
	for last > 0 && !isAnswer(h.messages[last-1]) {
		last--
	}
	if last == 0 {
		return nil
	}
	chains := make([]key, last+1)
	chains[0] = start(s.headHash(h.head))
	named := map[int]*node{}
	for i, msg := range h.messages[:last] {
		chains[i+1] = chains[i].then(h.key(i))
		if n := s.named(msg, chains[i]); n != nil {
			chains[i+1], named[i+1] = n.chainAt(n.count()), n
		}
	}
	for i := last; i > 0; i-- {
		if !isAnswer(h.messages[i-1]) {
			continue
		}
		if parent = named[i]; parent == nil {
			parent, m.Ambiguous = s.newest(s.answered(chains[i]))
		}
		if parent != nil {
			m.Keep = i
			return parent
		}
	}
	return nil
}

// named returns the turn that an answer says it was given in, if it answered
// the same history and made the same calls: then it is that turn, among equal
// ones and however the client changed its text.
func (s *Session) named(m message.Message, history key) *node {
	if m.Turn == "" || m.Role != message.Assistant {
		return nil
	}
	n := s.nodes[s.tree.Turn(m.Turn)]
	same := func(a, b message.Call) bool { return a.ID == b.ID }
	if n == nil || n.chainAt(n.count()-1) != history || !slices.EqualFunc(n.turn.Answer.Calls, m.Calls, same) {
		return nil
	}
	return n
}

// newest returns the last of equal turns, one whose answer arrived if there
// is any, and whether the choice was ambiguous.
func (s *Session) newest(equal []*node) (best *node, ambiguous bool) {
	arrived := 0
	for _, n := range equal {
		lost := s.tree.Undelivered[n.turn.ID] && len(n.turn.Children) == 0
		if !lost {
			arrived++
		}
		if best == nil || !lost || arrived == 0 {
			best = n
		}
	}
	return best, arrived > 1
}

func (m *Match) decide(s *Session, parent *node, h *history, known bool) {
	again := func() bool {
		var end key
		if parent != nil {
			end = parent.chainAt(parent.count())
		} else {
			end = start(s.headHash(h.head))
		}
		for i := m.Keep; i < len(h.messages); i++ {
			end = end.then(h.key(i))
		}
		return len(s.prompted(end)) > 0
	}
	switch {
	case parent == nil:
		m.Decision = Root
		switch {
		case len(s.tree.Turns) == 0:
			m.Reason = FirstTurn
		case again():
			m.Reason = Resample
		case s.sameUnderOtherHead(h):
			m.Reason = HeadChanged
		case !known:
			m.Reason = HistoryRewritten
		default:
			m.Reason = NewConversation
		}
	case !known:
		m.Decision, m.Reason = Branch, HistoryRewritten
	case len(parent.turn.Children) == 0:
		m.Decision = Extend
	case again():
		m.Decision, m.Reason = Branch, Resample
	default:
		m.Decision, m.Reason = Branch, Rewind
	}
}

// sameUnderOtherHead reports whether a root of another head began with the same
// first message.
func (s *Session) sameUnderOtherHead(h *history) bool {
	if len(h.messages) == 0 {
		return false
	}
	head := s.headHash(h.head)
	return slices.ContainsFunc(s.tree.Roots, func(t *tree.Turn) bool {
		n := s.nodes[t]
		return n != nil && len(n.turn.Added) > 0 && n.head != head && n.chainAt(1) == start(n.head).then(h.key(0))
	})
}

// compare names the differences between a recorded message and its echo, which
// have the same loose key or are an answer that names its turn.
func (m *Match) compare(recorded, echo message.Message) (rewritten bool) {
	if recorded.Content.Form != echo.Content.Form {
		m.tolerate(ContentForm)
	}
	switch {
	case recorded.Content.String() == echo.Content.String():
	case echo.Turn != "" && keyOfMessage(loose(recorded)) != keyOfMessage(loose(echo)):
		rewritten = true
	default:
		m.tolerate(TrailingSpace)
	}
	if recorded.Role != message.Assistant {
		return rewritten
	}
	switch {
	case recorded.Reasoning == echo.Reasoning:
	case strings.TrimSpace(echo.Reasoning) == "":
		m.tolerate(DroppedReasoning)
	case strings.TrimSpace(recorded.Reasoning) == strings.TrimSpace(echo.Reasoning):
		m.tolerate(TrailingSpace)
	default:
		m.tolerate(ChangedReasoning)
	}
	for i, was := range recorded.Calls {
		is := echo.Calls[i]
		switch {
		case was.Name == is.Name && was.Arguments == is.Arguments:
		case was.Name == is.Name && sameJSON([]byte(was.Arguments), []byte(is.Arguments)):
			m.tolerate(RespelledArguments)
		default:
			rewritten = true
		}
	}
	return rewritten
}

func (m *Match) tolerate(what string) {
	if !slices.Contains(m.Tolerances, what) {
		m.Tolerances = append(m.Tolerances, what)
	}
}

// alike reports whether two messages surely have the same loose key.
func alike(a, b message.Message) bool {
	if a.Role != b.Role || a.CallID != b.CallID || a.Role != message.Tool && a.Name != b.Name {
		return false
	}
	if !slices.EqualFunc(a.Calls, b.Calls, func(x, y message.Call) bool { return x.ID == y.ID }) {
		return false
	}
	x, y := loose(a).Content, loose(b).Content
	return plain(x) && plain(y) && x.String() == y.String()
}

// plain reports whether content is one text, however it is spelled.
func plain(c message.Content) bool { return c.OnlyText() && len(c.Parts) <= 1 }

// loose is a message with what clients are known to change taken away: space
// at the end of a text, and around an answer.
func loose(m message.Message) message.Message {
	trim := func(s string) string { return strings.TrimRight(s, " \t\r\n") }
	switch m.Role {
	case message.Tool:
		return m
	case message.Assistant:
		trim = strings.TrimSpace
	}
	switch m.Content.Form {
	case message.Text:
		m.Content.Text = trim(m.Content.Text)
	case message.List:
		if n := len(m.Content.Parts); n > 0 && m.Content.Parts[n-1].Raw == nil {
			m.Content.Parts = slices.Clone(m.Content.Parts)
			m.Content.Parts[n-1].Text = trim(m.Content.Parts[n-1].Text)
			if m.Role == message.Assistant && m.Content.OnlyText() {
				m.Content = message.TextContent(trim(m.Content.String()))
			}
		}
	}
	return m
}

// SortResults puts the results of parallel calls in the order of the calls:
// clients send them in the order in which they finished. It is done before
// anything depends on the order, and named ResultOrder.
func SortResults(messages []message.Message) (sorted []message.Message, changed bool) {
	sorted = messages
	for i := 0; i < len(sorted); i++ {
		calls := sorted[i].Calls
		end := i + 1
		for end < len(sorted) && sorted[end].Role == message.Tool {
			end++
		}
		if len(calls) < 2 || end-i < 3 {
			continue
		}
		place := func(m message.Message) int {
			if k := slices.IndexFunc(calls, func(c message.Call) bool { return c.ID == m.CallID }); k >= 0 {
				return k
			}
			return len(calls)
		}
		byPlace := func(a, b message.Message) int { return place(a) - place(b) }
		if slices.IsSortedFunc(sorted[i+1:end], byPlace) {
			continue
		}
		if !changed {
			sorted, changed = slices.Clone(sorted), true
		}
		slices.SortStableFunc(sorted[i+1:end], byPlace)
	}
	return sorted, changed
}

// sameJSON reports whether two texts are the same JSON value: the spelling of
// strings, the form of numbers, the order of keys and space do not count.
func sameJSON(a, b []byte) bool {
	if rawjson.Valid(a) != nil || rawjson.Valid(b) != nil {
		return false
	}
	return equalJSON(a, b)
}

func equalJSON(a, b []byte) bool {
	kind := rawjson.KindOf(a)
	if kind != rawjson.KindOf(b) {
		return false
	}
	switch kind {
	case rawjson.Object:
		for k := range rawjson.Members(a) {
			v, _ := rawjson.Get(a, k) // the last of repeated keys
			w, ok := rawjson.Get(b, k)
			if !ok || !equalJSON(v, w) {
				return false
			}
		}
		for k := range rawjson.Members(b) {
			if _, ok := rawjson.Get(a, k); !ok {
				return false
			}
		}
		return true
	case rawjson.Array:
		var x, y [][]byte
		for v := range rawjson.Elements(a) {
			x = append(x, v)
		}
		for v := range rawjson.Elements(b) {
			y = append(y, v)
		}
		return slices.EqualFunc(x, y, equalJSON)
	case rawjson.String:
		return rawjson.Text(a) == rawjson.Text(b)
	case rawjson.Number:
		return sameNumber(a, b)
	default:
		return strings.TrimSpace(string(a)) == strings.TrimSpace(string(b))
	}
}

// sameNumber compares as clients do that read numbers as float64.
func sameNumber(a, b []byte) bool {
	x, errX := strconv.ParseFloat(string(bytes.TrimSpace(a)), 64)
	y, errY := strconv.ParseFloat(string(bytes.TrimSpace(b)), 64)
	return errX == nil && errY == nil && x == y
}

func eventTime(ev *event.Event) time.Time { return time.UnixMicro(ev.GetTimeUs()) }
