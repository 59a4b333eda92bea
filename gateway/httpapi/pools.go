package httpapi

import (
	"errors"
	"net/http"
	"slices"

	"github.com/labstack/echo/v5"

	"turnlog.dev/gateway"
	"turnlog.dev/gateway/dialect"
	"turnlog.dev/gateway/pool"
	"turnlog.dev/schema/rawjson"
)

// listPools shows the replicas of every model at this gateway.
func (a *api) listPools(c *echo.Context) error {
	out := map[string]pool.Stats{}
	for _, m := range a.deps.Gateway.Models().List() {
		if m.Backends != nil {
			out[m.Name] = m.Backends.Stats()
		}
	}
	return c.JSON(http.StatusOK, out)
}

// addBackend adds an engine to a model: {"url":"http://host:port"}. It is
// compared with the model's tokenizer before its first request.
func (a *api) addBackend(c *echo.Context) error {
	b, err := a.backends(c)
	if err != nil {
		return err
	}
	body, err := a.body(c)
	if err != nil {
		return err
	}
	if err := dialect.Object(body); err != nil {
		return err
	}
	raw, _ := rawjson.Get(body, "url")
	url, err := dialect.Text("url", raw)
	if err != nil {
		return err
	}
	switch err := b.Open(url); {
	case errors.Is(err, pool.ErrDuplicate):
		return &gateway.Error{Kind: gateway.Conflict, Message: err.Error()}
	case err != nil:
		return gateway.Invalidf("url", "%v", err)
	}
	return c.JSON(http.StatusCreated, b.Stats())
}

// drainBackend answers when the replica has nothing to do any more.
func (a *api) drainBackend(c *echo.Context) error {
	return a.change(c, func(b gateway.Backends, name string) error { return b.Drain(c.Request().Context(), name) })
}

func (a *api) resumeBackend(c *echo.Context) error {
	return a.change(c, func(b gateway.Backends, name string) error { return b.Resume(name) })
}

func (a *api) removeBackend(c *echo.Context) error {
	return a.change(c, func(b gateway.Backends, name string) error { return b.Remove(name) })
}

func (a *api) change(c *echo.Context, f func(gateway.Backends, string) error) error {
	b, err := a.backends(c)
	if err != nil {
		return err
	}
	switch err := f(b, c.Param("backend")); {
	case errors.Is(err, pool.ErrUnknown):
		return &gateway.Error{Kind: gateway.UnknownThing, Message: err.Error()}
	case errors.Is(err, pool.ErrResumed):
		return &gateway.Error{Kind: gateway.Conflict, Message: err.Error()}
	case err != nil:
		return err
	}
	return c.JSON(http.StatusOK, b.Stats())
}

func (a *api) backends(c *echo.Context) (gateway.Backends, error) {
	list := a.deps.Gateway.Models().List()
	i := slices.IndexFunc(list, func(m *gateway.Model) bool { return m.Name == c.Param("model") })
	if i < 0 || list[i].Backends == nil {
		return nil, &gateway.Error{Kind: gateway.UnknownThing, Message: "no model of this name has a pool here; GET /pools lists them"}
	}
	return list[i].Backends, nil
}
