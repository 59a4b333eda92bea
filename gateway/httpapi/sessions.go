package httpapi

import (
	"fmt"
	"iter"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v5"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
	"turnlog.dev/schema/tree"
)

// openSession opens a session. The body, all of it optional:
//
//	{"session":"...","run":"...","group":"...","index":0,"attempt":0,
//	 "group_size":8,"task":"...","data_source":"...","split":"...",
//	 "metadata":{},"model":"...","buffered":false,"sampling":{"default":{},"override":{}},
//	 "limits":{"turns":0,"tokens":0,"wall_seconds":0,"idle_seconds":0}}
func (a *api) openSession(c *echo.Context) error {
	body, err := a.body(c)
	if err != nil {
		return err
	}
	req := gateway.OpenRequest{Opened: &event.SessionOpened{}}
	if len(body) > 0 {
		if err := decodeOpen(&req, body); err != nil {
			return err
		}
	}
	opened, err := a.deps.Gateway.Open(c.Request().Context(), req)
	if err != nil {
		return err
	}
	out := rawjson.AppendText([]byte(`{"session":`), opened.Session)
	out = rawjson.AppendText(append(out, `,"run":`...), opened.Run)
	out = rawjson.AppendText(append(out, `,"key":`...), opened.Key)
	out = rawjson.AppendText(append(out, `,"base_url":`...), c.Scheme()+"://"+c.Request().Host+"/sessions/"+opened.Session+"/v1")
	out = strconv.AppendBool(append(out, `,"created":`...), opened.Created)
	status := http.StatusOK
	if opened.Created {
		status = http.StatusCreated
	}
	return c.JSONBlob(status, append(out, "}\n"...))
}

func decodeOpen(req *gateway.OpenRequest, body []byte) (err error) {
	if err := dialect.Object(body); err != nil {
		return err
	}
	o := req.Opened
	var policy []rawjson.Set
	for k, v := range rawjson.Members(body) {
		switch k {
		case "session":
			req.Session, err = dialect.Text(k, v)
		case "run":
			req.Run, err = dialect.Text(k, v)
		case "group":
			o.Group, err = dialect.Text(k, v)
		case "index":
			o.Index, err = int32Of(k, v)
		case "attempt":
			o.Attempt, err = int32Of(k, v)
		case "group_size":
			o.GroupSize, err = int32Of(k, v)
		case "task":
			o.Task, err = dialect.Text(k, v)
		case "data_source":
			o.DataSource, err = dialect.Text(k, v)
		case "split":
			o.Split, err = dialect.Text(k, v)
		case "metadata":
			o.Metadata, err = objectOf(k, v)
		case "model", "buffered", "history", "sampling", "limits":
			policy = append(policy, rawjson.Set{Key: k, Value: v})
		default:
			err = gateway.Invalidf(k, "unknown field %q", k)
		}
		if err != nil {
			return err
		}
	}
	p, err := gateway.ParsePolicy(rawjson.Splice(nil, []byte("{}"), policy...))
	o.ModelPolicy, o.Limits = p.Model, p.Limits
	return err
}

// listSessions lists sessions from the registry, a JSON object a line:
// ?run=, ?group= and ?state=open|closed|parked|trimmed select. A session that
// was opened a moment ago may not be there yet.
func (a *api) listSessions(c *echo.Context) error {
	if a.deps.Sessions == nil {
		return &gateway.Error{Kind: gateway.UnknownRoute, Message: "this gateway does not list sessions"}
	}
	state := c.QueryParam("state")
	switch state {
	case "", "open", "closed", "parked", "trimmed":
	default:
		return gateway.Invalidf("state", "state is open, closed, parked or trimmed, not %q", state)
	}
	return a.lines(c, a.deps.Sessions.List(c.Request().Context(), c.QueryParam("run"), c.QueryParam("group"), state))
}

// lines writes JSON objects, one a line.
func (a *api) lines(c *echo.Context, rows iter.Seq2[[]byte, error]) error {
	w := c.Response()
	begun := false
	for row, err := range rows {
		switch {
		case err != nil && !begun:
			return err
		case err != nil:
			panic(http.ErrAbortHandler) // the list must not look complete
		case !begun:
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
		}
		if _, err := w.Write(append(row, '\n')); err != nil {
			return nil //nolint:nilerr // the reader is gone
		}
	}
	if !begun {
		return c.Blob(http.StatusOK, "application/x-ndjson", nil)
	}
	return nil
}

// listParked lists the events for which sessions are parked, a JSON object a
// line; ?run= selects.
func (a *api) listParked(c *echo.Context) error {
	if a.deps.Parked == nil {
		return errNoParked
	}
	return a.lines(c, a.deps.Parked.List(c.Request().Context(), c.QueryParam("run")))
}

var errNoParked = &gateway.Error{Kind: gateway.UnknownRoute, Message: "this gateway does not look after parked sessions"}

// releaseSession orders that a session be folded again, should it be parked. It
// answers when the order is in the log; recorders come to it later. The body is
// optional: {"detail":"why"}.
func (a *api) releaseSession(c *echo.Context) error {
	if a.deps.Parked == nil {
		return errNoParked
	}
	body, err := a.body(c)
	if err != nil {
		return err
	}
	detail := ""
	if len(body) > 0 {
		if err := dialect.Object(body); err != nil {
			return err
		}
		for k, v := range rawjson.Members(body) {
			if k != "detail" {
				return gateway.Invalidf(k, "unknown field %q", k)
			}
			if detail, err = dialect.Text(k, v); err != nil {
				return err
			}
		}
	}
	sess := c.Param("session")
	if !gateway.ValidName(sess) {
		return gateway.Invalidf("session", "a session id is 1 to 64 of A-Z, a-z, 0-9, _ and -")
	}
	if err := a.deps.Parked.Release(c.Request().Context(), sess, detail); err != nil {
		return err
	}
	return c.JSONBlob(http.StatusAccepted, append(rawjson.AppendText([]byte(`{"session":`), sess), `,"state":"released"}`+"\n"...))
}

// showTurn shows one turn as it stands in the log: its place, its messages, its
// ids and how they came to be.
func (a *api) showTurn(c *echo.Context) error {
	var n *tree.Turn
	var undelivered bool
	err := a.deps.Gateway.View(c.Request().Context(), c.Param("session"), func(t *tree.Tree, _ bool) error {
		if n = t.Turn(c.Param("turn")); n == nil {
			return &gateway.Error{Kind: gateway.UnknownThing, Param: "turn", Message: fmt.Sprintf("the session has no turn %q", c.Param("turn"))}
		}
		undelivered = t.Undelivered[n.ID]
		return nil
	})
	if err != nil {
		return err
	}
	return c.JSONBlob(http.StatusOK, append(appendTurn(nil, n, undelivered), '\n'))
}

func appendTurn(dst []byte, n *tree.Turn, undelivered bool) []byte {
	t := n.Committed
	text, _, _ := members(&dst)
	dst = rawjson.AppendText(append(dst, `{"turn":`...), n.ID)
	text("parent", t.GetParent())
	dst = strconv.AppendInt(append(dst, `,"parent_keep":`...), int64(n.Keep), 10)
	text("decision", t.GetMatch().GetDecision())
	text("reason", t.GetMatch().GetReason())
	dst = appendTexts(append(dst, `,"tolerances":`...), t.GetMatch().GetTolerances())
	text("class", t.GetRequest().GetClass())
	text("thread", t.GetRequest().GetThread())
	text("dialect", t.GetRequest().GetDialect())
	text("model_asked", t.GetRequest().GetModelAsked())
	text("model", t.GetRequest().GetModel())
	text("backend", t.GetGeneration().GetBackend())
	text("engine", t.GetGeneration().GetEngine())
	text("history", t.GetGeneration().GetPolicy())
	text("proof", strings.ToLower(strings.TrimPrefix(t.GetGeneration().GetProof().String(), "PROMPT_PROOF_")))
	text("finish_reason", t.GetCompletion().GetFinishReason())
	dst = strconv.AppendBool(append(dst, `,"undelivered":`...), undelivered)
	if s := t.GetRequest().GetSamplingUsed(); len(s) > 0 {
		dst = append(append(dst, `,"sampling":`...), s...)
	}
	dst = append(dst, `,"messages":[`...)
	for i, m := range n.Added {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = m.AppendJSON(dst)
	}
	dst = n.Answer.AppendJSON(append(dst, `],"answer":`...))
	dst = append(dst, `,"segments":[`...)
	for i, s := range t.GetSegments() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendText(append(dst, `{"source":`...), provenance(s.GetProvenance()))
		dst = append(appendNumbers(append(dst, `,"ids":`...), event.IDs(nil, s.GetIds())), '}')
	}
	dst = appendNumbers(append(dst, `],"completion":`...), event.IDs(nil, t.GetCompletion().GetIds()))
	return append(dst, '}')
}

// pieces is about how many bytes of an answer are written at once.
const pieces = 32 << 10

// showSession shows a session's state and its tree, turn by turn. It takes a
// look at the session and then writes what it saw: however long that is and
// however slow the reader, the session serves on.
func (a *api) showSession(c *echo.Context) error {
	var out []byte
	var turns []*tree.Turn
	err := a.deps.Gateway.View(c.Request().Context(), c.Param("session"), func(t *tree.Tree, trimmed bool) error {
		out, turns = appendSession(nil, t, trimmed), t.Turns
		return nil
	})
	if err != nil {
		return err
	}
	w := c.Response()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out = append(out, `,"turns":[`...)
	for i, n := range turns {
		if i > 0 {
			out = append(out, ',')
		}
		if out = appendPlace(out, n); len(out) >= pieces {
			if _, err := w.Write(out); err != nil {
				return nil //nolint:nilerr // the reader is gone
			}
			out = out[:0]
		}
	}
	_, _ = w.Write(append(out, "]}\n"...))
	return nil
}

// appendSession begins a JSON object with what there is to say of a session but
// for its turns.
func appendSession(dst []byte, t *tree.Tree, trimmed bool) []byte {
	state := "open"
	switch {
	case trimmed:
		state = "trimmed"
	case t.Closed != nil:
		state = "closed"
	}
	text, _, number := members(&dst)
	dst = rawjson.AppendText(append(dst, `{"session":`...), t.Session)
	text("run", t.Run)
	text("state", state)
	text("reason", t.Closed.GetReason())
	text("group", t.Opened.GetGroup())
	number("index", int64(t.Opened.GetIndex()))
	number("attempt", int64(t.Opened.GetAttempt()))
	text("task", t.Opened.GetTask())
	if r := t.Reward(); r != nil {
		dst = strconv.AppendFloat(append(dst, `,"reward":`...), r.GetReward(), 'g', -1, 64)
	}
	number("new_tokens", int64(t.NewIDs()))
	number("aborted", int64(len(t.Aborted)))
	return dst
}

// appendPlace appends a turn's place in the tree.
func appendPlace(dst []byte, n *tree.Turn) []byte {
	t := n.Committed
	text, flag, number := members(&dst)
	dst = rawjson.AppendText(append(dst, `{"turn":`...), n.ID)
	text("parent", t.GetParent())
	text("decision", t.GetMatch().GetDecision())
	text("reason", t.GetMatch().GetReason())
	text("tolerances", strings.Join(t.GetMatch().GetTolerances(), ","))
	flag("ambiguous", t.GetMatch().GetAmbiguous())
	flag("rewritten", t.GetMatch().GetRewritten())
	text("class", t.GetRequest().GetClass())
	text("dialect", t.GetRequest().GetDialect())
	text("model_asked", t.GetRequest().GetModelAsked())
	text("model", t.GetRequest().GetModel())
	text("thread", t.GetRequest().GetThread())
	text("finish_reason", t.GetCompletion().GetFinishReason())
	number("prompt_tokens", int64(n.PromptLen))
	number("parent_keep", int64(n.Keep))
	number("completion_tokens", int64(n.Len-n.PromptLen))
	return append(dst, '}')
}

// members append members to an object that has one already; what is empty or
// false is left out.
func members(dst *[]byte) (text func(key, value string), flag func(key string, set bool), number func(key string, n int64)) {
	key := func(k string) { *dst = append(append(append(*dst, `,"`...), k...), `":`...) }
	text = func(k, value string) {
		if value != "" {
			key(k)
			*dst = rawjson.AppendText(*dst, value)
		}
	}
	flag = func(k string, set bool) {
		if set {
			key(k)
			*dst = append(*dst, "true"...)
		}
	}
	number = func(k string, n int64) {
		key(k)
		*dst = strconv.AppendInt(*dst, n, 10)
	}
	return text, flag, number
}

// deleteSession closes a session with reason deleted; nothing is erased.
func (a *api) deleteSession(c *echo.Context) error {
	if err := a.deps.Gateway.Close(c.Request().Context(), c.Param("session"), "deleted", ""); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// closeSession closes a session, with a reward if the body names one:
//
//	{"reason":"completed","detail":"...","reward":1.0,"components":{}}
func (a *api) closeSession(c *echo.Context) error {
	body, err := a.body(c)
	if err != nil {
		return err
	}
	reason, detail := "completed", ""
	var reward *event.RewardAssigned
	if len(body) > 0 {
		if err := dialect.Object(body); err != nil {
			return err
		}
		var rest []rawjson.Set
		for k, v := range rawjson.Members(body) {
			switch k {
			case "reason":
				reason, err = dialect.Text(k, v)
			case "detail":
				detail, err = dialect.Text(k, v)
			default:
				rest = append(rest, rawjson.Set{Key: k, Value: v})
			}
			if err != nil {
				return err
			}
		}
		if len(rest) > 0 {
			if reward, err = decodeReward(rawjson.Splice(nil, []byte("{}"), rest...)); err != nil {
				return err
			}
		}
	}
	switch reason {
	case "completed", "aborted", "failed", "truncated":
	default:
		return gateway.Invalidf("reason", "reason must be completed, truncated, aborted or failed")
	}
	ctx, sess := c.Request().Context(), c.Param("session")
	if reward != nil {
		if err := a.deps.Gateway.Reward(ctx, sess, reward); err != nil {
			return err
		}
	}
	if err := a.deps.Gateway.Close(ctx, sess, reason, detail); err != nil {
		return err
	}
	return c.JSONBlob(http.StatusOK, append(rawjson.AppendText([]byte(`{"session":`), sess), `,"state":"closed"}`+"\n"...))
}

// reward assigns a reward:
//
//	{"reward":1.0,"components":{},"turn":"...","revision":0,"source":"..."}
func (a *api) reward(c *echo.Context) error {
	body, err := a.body(c)
	if err != nil {
		return err
	}
	r, err := decodeReward(body)
	if err != nil {
		return err
	}
	sess := c.Param("session")
	if err := a.deps.Gateway.Reward(c.Request().Context(), sess, r); err != nil {
		return err
	}
	out := rawjson.AppendText([]byte(`{"session":`), sess)
	out = strconv.AppendInt(append(out, `,"revision":`...), r.GetRevision(), 10)
	return c.JSONBlob(http.StatusOK, append(out, "}\n"...))
}

// annotate attaches anything else: judges' scores, reference logprobs, entropy.
//
//	{"name":"judge","value":{},"turn":"...","branch":"...","revision":0,"source":"..."}
func (a *api) annotate(c *echo.Context) error {
	body, err := a.body(c)
	if err != nil {
		return err
	}
	if err := dialect.Object(body); err != nil {
		return err
	}
	n := new(event.Annotated)
	for k, v := range rawjson.Members(body) {
		switch k {
		case "name":
			n.Name, err = dialect.Text(k, v)
		case "value":
			n.Value = v
		case "turn":
			n.Turn, err = dialect.Text(k, v)
		case "branch":
			n.Branch, err = dialect.Text(k, v)
		case "revision":
			n.Revision, err = int64Of(k, v)
		case "source":
			n.Source, err = dialect.Text(k, v)
		default:
			err = gateway.Invalidf(k, "unknown field %q", k)
		}
		if err != nil {
			return err
		}
	}
	sess := c.Param("session")
	if err := a.deps.Gateway.Annotate(c.Request().Context(), sess, n); err != nil {
		return err
	}
	out := rawjson.AppendText([]byte(`{"session":`), sess)
	out = strconv.AppendInt(append(out, `,"revision":`...), n.GetRevision(), 10)
	return c.JSONBlob(http.StatusOK, append(out, "}\n"...))
}

func decodeReward(body []byte) (r *event.RewardAssigned, err error) {
	if err := dialect.Object(body); err != nil {
		return nil, err
	}
	r = new(event.RewardAssigned)
	given := false
	for k, v := range rawjson.Members(body) {
		switch k {
		case "reward":
			given = true
			r.Reward, err = strconv.ParseFloat(string(v), 64)
			if err != nil || rawjson.KindOf(v) != rawjson.Number {
				err = gateway.Invalidf(k, "reward must be a number")
			}
		case "components":
			r.Components, err = objectOf(k, v)
		case "turn":
			r.Turn, err = dialect.Text(k, v)
		case "revision":
			r.Revision, err = int64Of(k, v)
		case "source":
			r.Source, err = dialect.Text(k, v)
		default:
			err = gateway.Invalidf(k, "unknown field %q", k)
		}
		if err != nil {
			return nil, err
		}
	}
	if !given {
		return nil, gateway.Invalidf("reward", "reward is missing")
	}
	return r, nil
}

func objectOf(param string, raw []byte) ([]byte, error) {
	switch rawjson.KindOf(raw) {
	case rawjson.Object:
		return raw, nil
	case rawjson.Null:
		return nil, nil
	}
	return nil, gateway.Invalidf(param, "%s is %s; it must be an object", param, rawjson.KindOf(raw))
}

func int64Of(param string, raw []byte) (int64, error) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < 0 {
		return 0, gateway.Invalidf(param, "%s must be an integer from 0 on", param)
	}
	return n, nil
}

func int32Of(param string, raw []byte) (int32, error) {
	n, err := int64Of(param, raw)
	if err == nil && n > math.MaxInt32 {
		err = gateway.Invalidf(param, "%s must be at most %d", param, math.MaxInt32)
	}
	return int32(n), err
}
