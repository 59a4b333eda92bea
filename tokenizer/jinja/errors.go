package jinja

import (
	"errors"
	"fmt"
)

// A render that would take too much is stopped with one of these. They are
// wrapped: test with errors.Is.
var (
	// ErrSteps: the template evaluated more than Limits.Steps nodes.
	ErrSteps = errors.New("step budget exhausted")
	// ErrDepth: macros, expressions or values are nested deeper than
	// Limits.Depth allows. Python raises RecursionError here.
	ErrDepth = errors.New("nested too deeply")
	// ErrOutput: the rendered text is longer than Limits.Output.
	ErrOutput = errors.New("output limit reached")
	// ErrMemory: intermediate values took more than Limits.Memory.
	ErrMemory = errors.New("memory budget exhausted")
)

// SyntaxError says that a template does not compile.
type SyntaxError struct {
	Line int // 1-based
	Msg  string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("jinja: compile: line %d: %s", e.Line, e.Msg)
}

// RaiseError is what raise_exception(message) does in a template: the
// template's author rejects the conversation.
type RaiseError struct {
	Line int // of the statement that called raise_exception
	Msg  string
}

func (e *RaiseError) Error() string { return "jinja: render: template says: " + e.Msg }

// Error is a failure at render time.
type Error struct {
	Line int // of the statement that failed; 0 if none was running
	// Kind names the exception that jinja2 raises in the same place:
	// UndefinedError, TypeError, SecurityError, ... A budget error has the kind
	// "Limit", and Err is the sentinel. "Internal" is a defect of this package.
	Kind string
	Msg  string
	Err  error
}

func (e *Error) Error() string {
	return fmt.Sprintf("jinja: render: line %d: %s: %s", e.Line, e.Kind, e.Msg)
}

func (e *Error) Unwrap() error { return e.Err }

// The engine is a tree of small functions, any of which may fail; they panic
// with one of the types above, and Compile and Render turn that into a
// returned error.

// raise stops the render with the exception that Python would raise.
func raise(kind, format string, args ...any) {
	panic(&Error{Kind: kind, Msg: fmt.Sprintf(format, args...)})
}

func exceeded(limit error) {
	panic(&Error{Kind: "Limit", Msg: limit.Error(), Err: limit})
}

func syntaxError(line int, format string, args ...any) {
	panic(&SyntaxError{Line: line, Msg: fmt.Sprintf(format, args...)})
}

// caught converts a recovered panic to the error to return. line is the one
// that was being executed.
func caught(p any, line int) error {
	switch e := p.(type) {
	case nil:
		return nil
	case *SyntaxError:
		return e
	case *RaiseError:
		e.Line = line
		return e
	case *Error:
		e.Line = line
		return e
	case error:
		// A defect here must not take the process down with it: the request
		// that found it fails, and the tests look for this kind.
		return &Error{Line: line, Kind: "Internal", Msg: e.Error(), Err: e}
	default:
		return &Error{Line: line, Kind: "Internal", Msg: fmt.Sprint(p)}
	}
}
