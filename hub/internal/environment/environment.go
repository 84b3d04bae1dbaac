// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/api/envd"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/sandboxd"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	// patience bounds how long the daemon of a sandbox that runs may take to respond.
	patience = 20 * time.Second
	pause    = 200 * time.Millisecond
)

// Options configure a Setter. All are required.
type Options struct {
	Opener reach.Opener
	// Key returns that of package e2b, the same at each replica. It is called where a claim has variables.
	Key   func() ([]byte, error)
	Clock clock.Clock
}

// Setter sets the environment of sandboxes.
type Setter struct {
	opts Options
}

// New returns a Setter.
func New(o Options) *Setter { return &Setter{o} }

// Ready returns why no environment can be set here; nil if it can.
func (s *Setter) Ready() error {
	if _, err := s.opts.Key(); err != nil {
		return problem.New(problem.Misconfigured, "envVars: %w", err)
	}
	return nil
}

// Set sets variables in a sandbox that runs. The context identifies the caller.
func (s *Setter) Set(ctx context.Context, id string, variables map[string]string) error {
	key, err := s.opts.Key()
	if err != nil {
		return problem.New(problem.Misconfigured, "envVars: %w", err)
	}
	token := sandboxd.Token(key, id)
	body, err := json.Marshal(map[string]any{"accessToken": token, "envVars": variables})
	if err != nil {
		return errors.New("writing the environment of a sandbox") // without the error, which may quote it
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, DisableCompression: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return reach.Prepare(ctx, s.opts.Opener, id, envd.Port)
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	var last error
	for {
		again, err := try(ctx, client, token, body)
		if !again {
			return err
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if wallclock.Sleep(ctx, s.opts.Clock, pause) != nil {
			return silent(last)
		}
	}
}

// try makes one request; again reports whether another one may help.
func try(ctx context.Context, client *http.Client, token string, body []byte) (again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://localhost:%d/init", envd.Port), bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("writing a request to a daemon: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Access-Token", token)
	response, err := client.Do(request)
	var refused *problem.Error
	switch {
	case errors.As(err, &refused) && refused.Reason != problem.Unavailable:
		return false, refused
	case err != nil:
		return true, err
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusMultipleChoices {
		return false, problem.New(problem.Misconfigured, "envVars: the sandbox's daemon refused them with status %d at port %d",
			response.StatusCode, envd.Port)
	}
	return false, nil
}

// silent is the error about a daemon that did not respond.
func silent(last error) error {
	return problem.New(problem.Misconfigured, "envVars: the sandbox's daemon did not respond at port %d within %s: %s", envd.Port, patience,
		validate.Clip(last.Error()))
}
