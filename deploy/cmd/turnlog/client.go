package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"turnlog.dev/deploy/config"
	"turnlog.dev/deploy/stack"
)

// client asks a gateway with the admin key.
type client struct {
	base, key string
}

func newClient(cfg config.Config) (client, error) {
	key, err := stack.AdminKey(cfg.AdminFile())
	return client{"http://" + cfg.Listen, key}, err
}

// errNoGateway says that nobody answers.
var errNoGateway = errors.New("no gateway answers")

// errOtherGateway says that who answers is not the one of this key.
var errOtherGateway = errors.New("does not take this admin key")

func (c client) get(ctx context.Context, path string) (io.ReadCloser, error) {
	return c.do(ctx, http.MethodGet, path, "")
}

// do sends a request and returns the body of an answer that is no refusal.
func (c client) do(ctx context.Context, method, path, body string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the address once more
		}
		return nil, fmt.Errorf("%w at %s: %w; start one with turnlog up, or say where it is with --listen", errNoGateway, c.base, err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		defer res.Body.Close()
		return nil, refusal(c.base, res)
	}
	return res.Body, nil
}

// errNotFound is an answer of a gateway that has not what was asked for.
var errNotFound = errors.New("not found")

// refusal is what a gateway's answer other than success says, in its own words.
func refusal(base string, res *http.Response) error {
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&body) != nil || body.Error.Message == "" {
		return fmt.Errorf("%w at %s, but another server (%s): say where the gateway is with --listen", errNoGateway, base, res.Status)
	}
	said := body.Error.Message
	switch res.StatusCode {
	case http.StatusNotFound:
		return fmt.Errorf("%w: %s", errNotFound, said)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("the gateway at %s %w (%s): name the data folder of that gateway with --data, or its key file with --keys.admin-file", base, errOtherGateway, said)
	}
	return fmt.Errorf("the gateway at %s answers %s: %s", base, res.Status, said)
}

// listed are the JSON objects of a list.
func listed[T any](ctx context.Context, c client, path string) (all []T, err error) {
	body, err := c.get(ctx, path)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	for dec := json.NewDecoder(body); ; {
		var row T
		if err := dec.Decode(&row); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("the gateway's answer to %s: %w", path, err)
		}
		all = append(all, row)
	}
}
