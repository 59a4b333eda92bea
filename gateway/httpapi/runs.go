package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
)

// openRun opens a run: {"run":"...","policy":{},"metadata":{}}. Its sessions
// inherit the policy; see gateway.ParsePolicy.
func (a *api) openRun(c *echo.Context) error {
	body, err := a.body(c)
	if err != nil {
		return err
	}
	if err := dialect.Object(body); err != nil {
		return err
	}
	var run string
	opened := new(event.RunOpened)
	for k, v := range rawjson.Members(body) {
		switch k {
		case "run":
			run, err = dialect.Text(k, v)
		case "policy":
			opened.Policy, err = objectOf(k, v)
		case "metadata":
			opened.Metadata, err = objectOf(k, v)
		default:
			err = gateway.Invalidf(k, "unknown field %q", k)
		}
		if err != nil {
			return err
		}
	}
	if err := a.deps.Gateway.OpenRun(c.Request().Context(), run, opened); err != nil {
		return err
	}
	return ofRun(c, run)
}

// updateWeights records new weights: {"version":7,"label":"step-7"}. The label
// is what engines report; without one it is the version.
func (a *api) updateWeights(c *echo.Context) error {
	body, err := a.body(c)
	if err != nil {
		return err
	}
	if err := dialect.Object(body); err != nil {
		return err
	}
	w := &event.WeightsUpdated{Version: -1}
	for k, v := range rawjson.Members(body) {
		switch k {
		case "version":
			w.Version, err = int32Of(k, v)
		case "label":
			w.Label, err = dialect.Text(k, v)
		default:
			err = gateway.Invalidf(k, "unknown field %q", k)
		}
		if err != nil {
			return err
		}
	}
	if err := a.deps.Gateway.UpdateWeights(c.Request().Context(), c.Param("run"), w); err != nil {
		return err
	}
	return ofRun(c, c.Param("run"))
}

// pauseRun holds back new turns of a run, at every gateway.
func (a *api) pauseRun(c *echo.Context) error {
	if err := a.deps.Gateway.Pause(c.Request().Context(), c.Param("run")); err != nil {
		return err
	}
	return ofRun(c, c.Param("run"))
}

// drainRun pauses a run and answers when none of its turns is under way at any
// gateway: {"run":"...","gone":["..."]}. Gone are gateways that were killed.
func (a *api) drainRun(c *echo.Context) error {
	run := c.Param("run")
	gone, err := a.deps.Gateway.Drain(c.Request().Context(), run)
	if err != nil {
		return err
	}
	out := rawjson.AppendText([]byte(`{"run":`), run)
	out = appendTexts(append(out, `,"gone":`...), gone)
	return c.JSONBlob(http.StatusOK, append(out, "}\n"...))
}

// resumeRun lets the turns of a run in again.
func (a *api) resumeRun(c *echo.Context) error {
	if err := a.deps.Gateway.Resume(c.Request().Context(), c.Param("run")); err != nil {
		return err
	}
	return ofRun(c, c.Param("run"))
}

func ofRun(c *echo.Context, run string) error {
	return c.JSONBlob(http.StatusOK, append(rawjson.AppendText([]byte(`{"run":`), run), "}\n"...))
}
