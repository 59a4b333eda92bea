package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/gateway/run"
	"turnlog.dev/gateway/session"
	"turnlog.dev/schema/journal"
)

// Kind is what went wrong, from the caller's point of view. Each dialect maps
// it to its own status and words.
type Kind string

// The kinds.
const (
	Invalid       Kind = "invalid"        // the request is at fault
	Unauthorized  Kind = "unauthorized"   // no key, or an unknown one
	Forbidden     Kind = "forbidden"      // a key for something else
	UnknownRoute  Kind = "unknown_route"  // nothing is there
	UnknownModel  Kind = "unknown_model"  // no model of that name
	UnknownThing  Kind = "not_found"      // no session, turn or run of that id
	Closed        Kind = "closed"         // the session takes no more turns
	Conflict      Kind = "conflict"       // it exists, and is something else
	TooLarge      Kind = "too_large"      // a body over the limit
	TooLong       Kind = "too_long"       // more than the model's context
	Limited       Kind = "limited"        // a limit of the session
	Overloaded    Kind = "overloaded"     // no capacity now
	EngineDown    Kind = "engine_down"    // no engine answers
	EngineFault   Kind = "engine_fault"   // the engine's answer cannot be used
	Deadline      Kind = "deadline"       // it took too long
	LogDown       Kind = "log_down"       // the log cannot take the turn
	Damaged       Kind = "damaged"        // the session's log cannot be read
	Interrupted   Kind = "interrupted"    // the client went away
	InternalFault Kind = "internal_fault" // our fault
)

// Error is an error with a kind, fit to be shown to a client.
type Error struct {
	Kind    Kind
	Message string
	// Param names the part of the request that is at fault.
	Param string
	// RetryAfter, if positive, is when trying again makes sense.
	RetryAfter time.Duration
	// Window and Prompt are token counts, for TooLong.
	Window, Prompt int
	Err            error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Invalidf is an error of kind Invalid about one part of a request.
func Invalidf(param, format string, args ...any) *Error {
	return &Error{Kind: Invalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

// AsError returns err as an Error: the one it wraps, or one that says what the
// packages below mean by it. Internal detail goes to Err, not to Message.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case is(session.ErrUnknown):
		return &Error{Kind: UnknownThing, Message: "no such session; open it with POST /sessions", Err: err}
	case is(session.ErrClosed):
		return &Error{Kind: Closed, Message: "the session is closed", Err: err}
	case is(run.ErrOver):
		return &Error{Kind: Closed, Message: "the run is over and its events have left the log; open another run", Err: err}
	case is(journal.ErrTrimmed):
		return &Error{Kind: Closed, Message: "the session is over and its turns have left the log; read them in the shards, and open another session", Err: err}
	case is(run.ErrResumed):
		return &Error{Kind: Conflict, Message: "the run was resumed while its turns were waited for", Err: err}
	case is(session.ErrDamaged), is(journal.ErrGap):
		return &Error{Kind: Damaged, Message: "the session's log cannot be read; see the gateway's log", Err: err}
	case is(journal.ErrTooLarge):
		return &Error{Kind: TooLarge, Message: "the turn is larger than the log takes", Err: err}
	case is(journal.ErrUnavailable), is(journal.ErrFull), is(journal.ErrClosed):
		return &Error{Kind: LogDown, Message: "the log cannot take the turn", RetryAfter: 5 * time.Second, Err: err}
	}
	var ee *engine.Error
	if errors.As(err, &ee) {
		return fromEngine(ee)
	}
	switch {
	case is(context.DeadlineExceeded):
		return &Error{Kind: Deadline, Message: "the turn took too long", Err: err}
	case is(context.Canceled):
		return &Error{Kind: Interrupted, Message: "the client went away", Err: err}
	}
	return &Error{Kind: InternalFault, Message: "internal error; see the gateway's log", Err: err}
}

func fromEngine(e *engine.Error) *Error {
	switch e.Class {
	case engine.Overloaded:
		return &Error{Kind: Overloaded, Message: "the engines are busy", RetryAfter: max(e.RetryAfter, time.Second), Err: e}
	case engine.Refused:
		return &Error{Kind: Invalid, Message: "the engine refused the request: " + e.Message, Err: e}
	case engine.TooLong:
		return &Error{Kind: TooLong, Message: "prompt and answer do not fit the model's context", Err: e}
	case engine.Broken:
		return &Error{Kind: EngineFault, Message: "the engine's answer cannot be recorded: " + e.Message, Err: e}
	case engine.Failed:
		return &Error{Kind: EngineFault, Message: "the engine failed", RetryAfter: time.Second, Err: e}
	default:
		return &Error{Kind: EngineDown, Message: "no engine answers", RetryAfter: 2 * time.Second, Err: e}
	}
}
