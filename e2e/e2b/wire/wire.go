// SPDX-License-Identifier: Apache-2.0

// Package wire speaks to a gateway as E2B's SDKs do: their control plane as JSON, and the daemon of a sandbox by Connect, with a sandbox
// named in headers.
//
// In: a gateway's address and an API key. Out: responses as they came; because suites look at what a client would see. Nothing is retried.
package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"connectrpc.com/connect"

	"navix.sh/atoll/api/envd"
	processv1 "navix.sh/atoll/api/envd/process"
)

// Client is a caller with an API key.
type Client struct {
	// Origin is the gateway's URL, without a slash at its end.
	Origin string
	Key    string
}

// Sandbox is what a create returns.
type Sandbox struct {
	ID      string `json:"sandboxID"`
	Cluster string `json:"clientID"`
	Token   string `json:"envdAccessToken"`
}

// Refusal is a response that is an error.
type Refusal struct {
	Status int
	Body   string
}

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("%d %s", r.Status, r.Body) }

// Do makes a request with headers, which are names and values in turn.
func (c *Client) Do(ctx context.Context, method, path string, body io.Reader, header ...string) (status int, text []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, c.Origin+path, body)
	if err != nil {
		return 0, nil, fmt.Errorf("writing a request: %w", err)
	}
	request.Header.Set("X-API-KEY", c.Key)
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("calling the gateway: %w", err)
	}
	defer response.Body.Close()
	if text, err = io.ReadAll(response.Body); err != nil {
		return 0, nil, fmt.Errorf("reading a response of the gateway: %w", err)
	}
	return response.StatusCode, text, nil
}

// Create makes a sandbox of a template, which ends after some seconds.
func (c *Client) Create(ctx context.Context, template string, timeout int) (*Sandbox, error) {
	body, err := json.Marshal(map[string]any{"templateID": template, "timeout": timeout})
	if err != nil {
		return nil, fmt.Errorf("writing a create: %w", err)
	}
	status, text, err := c.Do(ctx, http.MethodPost, "/v2/sandboxes", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if status != http.StatusCreated {
		return nil, &Refusal{status, string(text)}
	}
	s := &Sandbox{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("reading a create's response: %w", err)
	}
	return s, nil
}

// Kill ends a sandbox.
func (c *Client) Kill(ctx context.Context, s *Sandbox) error {
	status, text, err := c.Do(ctx, http.MethodDelete, "/sandboxes/"+s.ID, nil)
	if err == nil && status != http.StatusNoContent {
		err = &Refusal{status, string(text)}
	}
	return err
}

func (s *Sandbox) header() []string {
	return []string{"X-Access-Token", s.Token, "E2b-Sandbox-Id", s.ID, "E2b-Sandbox-Port", fmt.Sprint(envd.Port)}
}

// Run runs a command with a shell, and returns what it printed to standard output.
func (c *Client) Run(ctx context.Context, s *Sandbox, command string) (string, error) {
	client := connect.NewClient[processv1.StartRequest, processv1.StartResponse](http.DefaultClient, c.Origin+envd.ProcessStart,
		connect.WithProtoJSON())
	request := connect.NewRequest(&processv1.StartRequest{Process: &processv1.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", command}}})
	for h := s.header(); len(h) > 0; h = h[2:] {
		request.Header().Set(h[0], h[1])
	}
	stream, err := client.CallServerStream(ctx, request)
	if err != nil {
		return "", err
	}
	defer func() { _ = stream.Close() }()
	var out strings.Builder
	for stream.Receive() {
		out.Write(stream.Msg().GetEvent().GetData().GetStdout())
	}
	return out.String(), stream.Err()
}

// Write writes a file.
func (c *Client) Write(ctx context.Context, s *Sandbox, path, content string) error {
	_, err := c.files(ctx, s, http.MethodPost, path, content)
	return err
}

// Read reads a file.
func (c *Client) Read(ctx context.Context, s *Sandbox, path string) (string, error) {
	return c.files(ctx, s, http.MethodGet, path, "")
}

func (c *Client) files(ctx context.Context, s *Sandbox, method, path, content string) (string, error) {
	status, text, err := c.Do(ctx, method, "/files?path="+url.QueryEscape(path), strings.NewReader(content),
		append(s.header(), "Content-Type", "application/octet-stream")...)
	if err == nil && status != http.StatusOK {
		err = &Refusal{status, string(text)}
	}
	return string(text), err
}
