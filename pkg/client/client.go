// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

const (
	maxResponse = 16 << 20
	// releaseTimeout bounds the cleanup for a caller that has left.
	releaseTimeout = 30 * time.Second
)

// Options configure a Client.
type Options struct {
	// Server is the URL of a hub, such as https://hub.example:8080.
	Server string
	// Token is an API key; empty: the server requires none.
	Token string
	// TokenSource returns the key for each request. It replaces Token.
	TokenSource func() (string, error)
	// HTTP makes the requests. Default: http.DefaultClient.
	HTTP *http.Client
	// Patience is how long a create is retried if its outcome is unknown or the server cannot serve it at the moment. Default: 2 minutes. The
	// context of the call also bounds it.
	Patience time.Duration
}

// Client calls a server. Its methods are safe for concurrent use.
type Client struct {
	opts Options
	base *url.URL
}

// New returns a Client. It does not connect.
func New(o Options) (*Client, error) {
	base, err := url.Parse(o.Server)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, problem.InvalidField("Server", o.Server, "a URL such as https://hub.example:8080")
	}
	base.Path, base.RawQuery = "", ""
	if o.HTTP == nil {
		o.HTTP = http.DefaultClient
	}
	if o.Patience == 0 {
		o.Patience = 2 * time.Minute
	}
	if o.TokenSource == nil {
		o.TokenSource = func() (string, error) { return o.Token, nil }
	}
	return &Client{opts: o, base: base}, nil
}

// List returns the live sandboxes that the caller may see. filters are those of GET /v1/sandboxes; nil: all sandboxes.
func (c *Client) List(ctx context.Context, filters url.Values) ([]*sandboxv1.Sandbox, error) {
	query := url.Values{}
	for name, values := range filters {
		query[name] = values
	}
	var all []*sandboxv1.Sandbox
	for {
		page := &sandboxv1.ListSandboxesResponse{}
		if err := c.call(ctx, http.MethodGet, "/v1/sandboxes", query, nil, page); err != nil {
			return nil, err
		}
		all = append(all, page.GetSandboxes()...)
		if page.GetNextPageToken() == "" {
			return all, nil
		}
		query.Set("pageToken", page.GetNextPageToken())
	}
}

// Get returns an existing sandbox.
func (c *Client) Get(ctx context.Context, id string) (*Sandbox, error) {
	info := &sandboxv1.Sandbox{}
	if err := c.call(ctx, http.MethodGet, "/v1/sandboxes/"+url.PathEscape(id), nil, nil, info); err != nil {
		return nil, err
	}
	return &Sandbox{client: c, info: info}, nil
}

// Of returns a sandbox by its id without calling the server. Its Info contains only the id.
func (c *Client) Of(id string) *Sandbox { return &Sandbox{client: c, info: &sandboxv1.Sandbox{Id: id}} }

// send sends a request. It returns an error response as a *problem.Error. Otherwise the caller must close the body.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body io.Reader, header ...string) (
	*http.Response, error,
) {
	request, err := http.NewRequestWithContext(ctx, method, c.base.String()+path+suffix(query), body)
	if err != nil {
		return nil, fmt.Errorf("writing a request: %w", err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	return c.do(request)
}

func suffix(query url.Values) string {
	if len(query) == 0 {
		return ""
	}
	return "?" + query.Encode()
}

func (c *Client) do(request *http.Request) (*http.Response, error) {
	if err := c.authorize(request); err != nil {
		return nil, err
	}
	response, err := c.opts.HTTP.Do(request)
	if err != nil {
		if ctx := request.Context(); ctx.Err() != nil {
			return nil, fmt.Errorf("calling %s: %w", c.base.Host, context.Cause(ctx))
		}
		return nil, problem.New(problem.Unavailable, "%s was not reached: %w", c.base.Host, err)
	}
	if response.StatusCode < http.StatusBadRequest {
		return response, nil
	}
	defer response.Body.Close()
	p := problem.Read(response.StatusCode, response.Body)
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		p.RetryAfter = time.Duration(seconds) * time.Second
	}
	return nil, p
}

func (c *Client) authorize(request *http.Request) error {
	token, err := c.opts.TokenSource()
	if err != nil {
		return fmt.Errorf("reading the API key: %w", err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

// call makes a JSON call. in and out are messages of the API, or values for encoding/json. If out is nil, the response is dropped.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body io.Reader
	var header []string
	if in != nil {
		text, err := encode(in)
		if err != nil {
			return fmt.Errorf("writing a request: %w", err)
		}
		body, header = bytes.NewReader(text), []string{"Content-Type", "application/json"}
	}
	response, err := c.send(ctx, method, path, query, body, header...)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("calling %s: %w", c.base.Host, context.Cause(ctx))
	case err != nil:
		return problem.New(problem.Unavailable, "the response of %s broke off: %w", c.base.Host, err)
	case len(text) > maxResponse:
		return errors.New("the response is too large")
	case out == nil:
		return nil
	}
	if err := decode(text, out); err != nil {
		return fmt.Errorf("reading the response of %s: %w", c.base.Host, err)
	}
	return nil
}

func encode(in any) ([]byte, error) {
	if message, ok := in.(proto.Message); ok {
		return protojson.Marshal(message)
	}
	return json.Marshal(in)
}

func decode(text []byte, out any) error {
	if message, ok := out.(proto.Message); ok {
		return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, message)
	}
	return json.Unmarshal(text, out)
}
