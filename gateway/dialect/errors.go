package dialect

import "turnlog.dev/gateway"

// ErrorText is what a client is told. Clients decide whether to try again by
// words in the text as much as by the status, and in a stream by the text
// alone: errors that pass have the words that they look for.
func ErrorText(e *gateway.Error) string {
	switch e.Kind {
	case gateway.Overloaded:
		return e.Message + " (overloaded, try again)"
	case gateway.EngineDown, gateway.EngineFault, gateway.LogDown:
		return e.Message + " (service unavailable, try again)"
	case gateway.Deadline:
		return e.Message + " (timed out)"
	}
	return e.Message
}
