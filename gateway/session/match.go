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
	// Rewritten: the client changed a tool call; the recorded one counts.
	Rewritten bool
	// Head is the parent's, and Thought says that there is thinking in its
	// conversation, the answer included.
	Head    message.Head
	Thought bool
}

// node is what the index knows of a turn.
type node struct {
	turn   *tree.Turn
	parent *node
	head   message.Hash
	keep   int
	// added are the messages after the first keep of the parent's
	// conversation, answer is the turn's own.
	added  []message.Message
	answer message.Message
	// chains are the histories after each of added, then after the answer.
	chains []message.Hash
	// thought: there is thinking in the conversation, the answer included.
	thought bool
}

// count is the number of messages of the conversation, the answer included.
func (n *node) count() int { return n.keep + len(n.added) + 1 }

// add indexes a turn that has just been folded.
func (s *Session) add(t *tree.Turn) error {
	conv := t.Committed.GetConversation()
	n := &node{turn: t, parent: s.nodes[t.Parent], keep: int(conv.GetKeep())}
	copy(n.head[:], conv.GetHead())
	for _, raw := range conv.GetMessages() {
		m, err := message.Parse(raw)
		if err != nil {
			return err
		}
		n.added = append(n.added, m)
	}
	var err error
	if n.answer, err = message.Parse(conv.GetAnswer()); err != nil {
		return err
	}
	chain := n.head
	if n.parent != nil {
		chain = n.parent.chainAt(n.keep)
	}
	prompt := chain
	for _, m := range n.added {
		chain = message.Chain(chain, loose(m).Hash())
		n.chains = append(n.chains, chain)
		prompt = chain
	}
	chain = message.Chain(chain, loose(n.answer).Hash())
	n.chains = append(n.chains, chain)
	thinks := func(m message.Message) bool { return m.Reasoning != "" }
	n.thought = n.parent != nil && n.parent.thought || thinks(n.answer) || slices.ContainsFunc(n.added, thinks)

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
	for _, c := range n.answer.Calls {
		if c.ModelID != "" {
			s.modelIDs[c.ID] = c.ModelID
		}
	}
	if len(s.nodes) == 0 {
		s.index += indexBase
	}
	s.index += indexTurn + len(conv.GetAnswer())
	for _, raw := range conv.GetMessages() {
		s.index += len(raw)
	}
	s.nodes[t] = n
	s.prompts[prompt] = append(s.prompts[prompt], n)
	s.answers[chain] = append(s.answers[chain], n)
	return nil
}

// chainAt is the history after the first k messages of the conversation.
func (n *node) chainAt(k int) message.Hash {
	for {
		switch {
		case k > n.keep:
			return n.chains[k-n.keep-1]
		case n.parent == nil:
			return n.head
		}
		n = n.parent
	}
}

// walk calls fn with the messages of the conversation, the answer first and
// then backwards, until fn says no, and reports whether it never did. Backwards
// needs no list of the turns on the way: a turn's work must not grow with the
// session.
func (n *node) walk(fn func(k int, m message.Message) bool) bool {
	until := n.count()
	for p := n; p != nil; p = p.parent {
		for k := until - 1; k >= p.keep; k-- {
			m := p.answer
			if i := k - p.keep; i < len(p.added) {
				m = p.added[i]
			}
			if !fn(k, m) {
				return false
			}
		}
		// What the turn before adds counts up to where this one took over.
		until = min(until, p.keep)
	}
	return true
}

// Match finds the turn that a request continues: the one whose history, answer
// included, is the longest beginning of the request's. known is false if the
// request holds an answer beyond that: catching up may find its turn.
func (s *Session) Match(c message.Conversation) (m Match, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	messages := c.Messages
	parent, end := s.latest(c.Head, messages)
	if parent != nil {
		m.Keep = parent.count()
	} else {
		parent, end = s.search(c.Head, messages, &m)
	}
	m.Added = messages[m.Keep:]
	known = !slices.ContainsFunc(m.Added, isAnswer)
	if parent != nil {
		m.Parent, m.Answer, m.Thought = parent.turn, parent.answer, parent.thought
		if h := s.heads[parent.head]; h != nil {
			m.Head = message.Head{System: h.system, Tools: h.tools}
		}
		named := len(m.Tolerances)
		parent.walk(func(k int, recorded message.Message) bool {
			m.compare(recorded, messages[k])
			return true
		})
		slices.Sort(m.Tolerances[named:])
	}
	m.decide(s, c.Head, parent, end, messages, known)
	return m, known
}

func isAnswer(m message.Message) bool { return m.Role == message.Assistant }

// latest returns the turn that was committed last if the request plainly
// continues it, and the history that the request ends in. It is what search
// would find: comparing texts costs much less than hashing them, and a turn's
// work should depend on what is new.
func (s *Session) latest(head message.Head, messages []message.Message) (*node, message.Hash) {
	turns := s.tree.Turns
	if len(turns) == 0 {
		return nil, message.Hash{}
	}
	n := s.nodes[turns[len(turns)-1]]
	k := n.count()
	if k > len(messages) || slices.ContainsFunc(messages[k:], isAnswer) || !s.heads[n.head].same(head) {
		return nil, message.Hash{}
	}
	if named := messages[k-1].Turn; named != "" && named != n.turn.ID {
		return nil, message.Hash{}
	}
	chain := n.chains[len(n.chains)-1]
	if len(s.answers[chain]) > 1 || !n.walk(func(k int, recorded message.Message) bool { return alike(recorded, messages[k]) }) {
		return nil, message.Hash{}
	}
	for _, m := range messages[k:] {
		chain = message.Chain(chain, loose(m).Hash())
	}
	return n, chain
}

// search returns the turn that the request continues, by the hashes of its
// history, and the history that the request ends in.
func (s *Session) search(head message.Head, messages []message.Message, m *Match) (parent *node, end message.Hash) {
	chains := make([]message.Hash, len(messages)+1)
	chains[0] = head.Hash()
	named := map[int]*node{}
	for i, msg := range messages {
		chains[i+1] = message.Chain(chains[i], loose(msg).Hash())
		if n := s.named(msg, chains[i]); n != nil {
			chains[i+1], named[i+1] = n.chainAt(n.count()), n
		}
	}
	end = chains[len(messages)]
	for i := len(messages); i > 0; i-- {
		if !isAnswer(messages[i-1]) {
			continue
		}
		if parent = named[i]; parent == nil {
			parent, m.Ambiguous = s.newest(s.answers[chains[i]])
		}
		if parent != nil {
			m.Keep = i
			return parent, end
		}
	}
	return nil, end
}

// named returns the turn that an answer says it was given in, if it answered
// the same history and made the same calls: then it is that turn, among equal
// ones and however the client changed its text.
func (s *Session) named(m message.Message, history message.Hash) *node {
	if m.Turn == "" || m.Role != message.Assistant {
		return nil
	}
	n := s.nodes[s.tree.Turn(m.Turn)]
	same := func(a, b message.Call) bool { return a.ID == b.ID }
	if n == nil || n.chainAt(n.count()-1) != history || !slices.EqualFunc(n.answer.Calls, m.Calls, same) {
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

func (m *Match) decide(s *Session, head message.Head, parent *node, end message.Hash, messages []message.Message, known bool) {
	again := len(s.prompts[end]) > 0
	switch {
	case parent == nil:
		m.Decision = Root
		switch {
		case len(s.tree.Turns) == 0:
			m.Reason = FirstTurn
		case again:
			m.Reason = Resample
		case s.sameUnderOtherHead(head, messages):
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
	case again:
		m.Decision, m.Reason = Branch, Resample
	default:
		m.Decision, m.Reason = Branch, Rewind
	}
}

// sameUnderOtherHead reports whether a root of another head began with the same
// first message.
func (s *Session) sameUnderOtherHead(head message.Head, messages []message.Message) bool {
	if len(messages) == 0 {
		return false
	}
	first, its := loose(messages[0]).Hash(), head.Hash()
	return slices.ContainsFunc(s.tree.Roots, func(t *tree.Turn) bool {
		n := s.nodes[t]
		return n != nil && len(n.added) > 0 && n.head != its && n.chains[0] == message.Chain(n.head, first)
	})
}

// compare names the differences between a recorded message and its echo, which
// have the same loose hash or are an answer that names its turn.
func (m *Match) compare(recorded, echo message.Message) {
	if recorded.Content.Form != echo.Content.Form {
		m.tolerate(ContentForm)
	}
	switch {
	case recorded.Content.String() == echo.Content.String():
	case echo.Turn != "" && loose(recorded).Hash() != loose(echo).Hash():
		m.Rewritten = true
	default:
		m.tolerate(TrailingSpace)
	}
	if recorded.Role != message.Assistant {
		return
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
			m.Rewritten = true
		}
	}
}

func (m *Match) tolerate(what string) {
	if !slices.Contains(m.Tolerances, what) {
		m.Tolerances = append(m.Tolerances, what)
	}
}

// alike reports whether two messages surely have the same loose hash.
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
