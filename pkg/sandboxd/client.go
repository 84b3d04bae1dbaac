// SPDX-License-Identifier: Apache-2.0

package sandboxd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
)

const (
	maxError  = 64 << 10
	maxStream = 1 << 20 // of one message in a stream
)

// A daemon that refuses a request closes the connection. A body that is still being written then fails, and the response is lost. So bodies
// that are not written at once wait until the daemon reads them.
const expect, proceed = "Expect", "100-continue"

const (
	// ModeParameter is the query parameter with the permissions of a file to write, in octal.
	ModeParameter = "mode"
	// ModeHeader is the response header that repeats the permissions. Daemons that do not support the parameter do not send it.
	ModeHeader = "X-Atoll-Mode"
)

// Client calls the daemon of one sandbox.
type Client struct {
	// HTTP makes the requests.
	HTTP connect.HTTPClient
	// Base is the URL of the daemon's port, without a slash at its end.
	Base  string
	Token string
	// User is the user as whom the calls act; empty: the container's own.
	User string
}

// StatusError is an error response.
type StatusError struct {
	Status int
	Header http.Header
	Body   []byte // clipped
}

// Error returns the message of the response.
func (e *StatusError) Error() string {
	var said struct{ Message, Detail, Title string }
	_ = json.Unmarshal(e.Body, &said)
	return cmp.Or(said.Message, said.Detail, said.Title, http.StatusText(e.Status))
}

// Defaults are the defaults for processes and paths of a sandbox. Empty fields change nothing.
type Defaults struct {
	Env           map[string]string // added to the existing variables
	User, Workdir string
}

// Init sets the defaults, and the daemon's token if it has none. The daemon ignores a call that is older than the last one; with the zero
// time it accepts every call.
func (c *Client) Init(ctx context.Context, d Defaults, now time.Time) error {
	body := map[string]any{"accessToken": c.Token}
	for field, value := range map[string]string{"defaultUser": d.User, "defaultWorkdir": d.Workdir} {
		if value != "" {
			body[field] = value
		}
	}
	if !now.IsZero() {
		body["timestamp"] = now.UTC()
	}
	if len(d.Env) > 0 {
		body["envVars"] = d.Env
	}
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("writing /init: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Base+"/init", bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("writing /init: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.do(request)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusMultipleChoices { // a redirect has set nothing
		return errors.Join(&StatusError{Status: response.StatusCode, Header: response.Header}, response.Body.Close())
	}
	return response.Body.Close()
}

// Do makes an HTTP request. It returns an error response as a StatusError. Otherwise the caller must close the body.
func (c *Client) Do(request *http.Request, now time.Time) (*http.Response, error) {
	return again(request.Context(), c, now, func() (*http.Response, error) {
		// A body can be sent again if nothing of it was sent.
		try := request.Clone(request.Context())
		body := &untouched{Reader: request.Body}
		if request.Body != nil && request.Body != http.NoBody {
			try.Body = body
			try.Header.Set(expect, proceed)
		}
		response, err := c.do(try)
		if body.touched.Load() && tokenless(err) {
			return nil, fmt.Errorf("the daemon refused a body that it had begun to take: %w", errors.New(err.Error()))
		}
		return response, err
	})
}

// untouched is a body that the transport cannot close, and that records whether any of it was read.
type untouched struct {
	io.Reader
	touched atomic.Bool // the transport may continue to read after the response
}

func (u *untouched) Read(p []byte) (int, error) {
	u.touched.Store(true)
	return u.Reader.Read(p)
}

func (*untouched) Close() error { return nil }

func (c *Client) do(request *http.Request) (*http.Response, error) {
	c.authorize(request.Header)
	response, err := c.HTTP.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < http.StatusBadRequest {
		return response, nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxError))
	if err != nil {
		return nil, err
	}
	return nil, &StatusError{Status: response.StatusCode, Header: response.Header, Body: text}
}

func (c *Client) authorize(header http.Header) {
	header.Set(TokenHeader, c.Token)
	if c.User != "" {
		header.Set(UserHeader, c.User)
	}
}

// Call makes a unary Connect call. The response may have at most `most` bytes.
func Call[R, Q any](ctx context.Context, c *Client, path string, most int, now time.Time, q *Q) (*R, error) {
	client := connect.NewClient[Q, R](c.HTTP, c.Base+path, connect.WithReadMaxBytes(most), plain)
	return again(ctx, c, now, func() (*R, error) {
		request := connect.NewRequest(q)
		c.authorize(request.Header())
		response, err := client.CallUnary(ctx, request)
		if err != nil {
			return nil, err
		}
		return response.Msg, nil
	})
}

// plain disables compression, so that a sandbox cannot send more than what its tunnel carries.
var plain = connect.WithAcceptCompression("gzip", nil, nil)

// Stream makes a Connect call with a streaming response, and returns after it has received the first message. The caller must close the
// stream.
func Stream[R, Q any](ctx context.Context, c *Client, path string, now time.Time, q *Q, header http.Header) (
	*connect.ServerStreamForClient[R], error,
) {
	client := connect.NewClient[Q, R](c.HTTP, c.Base+path, connect.WithReadMaxBytes(maxStream), plain)
	return again(ctx, c, now, func() (*connect.ServerStreamForClient[R], error) {
		request := connect.NewRequest(q)
		for name, values := range header {
			request.Header()[name] = values
		}
		c.authorize(request.Header())
		request.Header().Set(expect, proceed)
		stream, err := client.CallServerStream(ctx, request)
		if err != nil {
			return nil, err
		}
		if stream.Receive() {
			return stream, nil
		}
		err = stream.Err()
		_ = stream.Close()
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	})
}

// again makes a call. If the daemon refuses its token, it calls Init and makes the call again.
func again[R any](ctx context.Context, c *Client, now time.Time, call func() (R, error)) (R, error) {
	out, err := call()
	if !tokenless(err) {
		return out, err
	}
	if err := c.Init(ctx, Defaults{}, now); err != nil {
		var refused *StatusError
		if errors.As(err, &refused) && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusConflict) {
			return out, ErrForeignToken
		}
		return out, err
	}
	return call()
}

// ErrForeignToken means that another caller set the daemon's token.
var ErrForeignToken = errors.New("the sandbox's daemon has a token that is not this hub's")

// tokenless reports whether a daemon refused a call because of its token, or because it does not know the user.
func tokenless(err error) bool {
	var refused *StatusError
	return errors.As(err, &refused) && refused.Status == http.StatusUnauthorized || connect.CodeOf(err) == connect.CodeUnauthenticated
}
