// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
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
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	daemon := &sandboxd.Client{Base: fmt.Sprintf("http://localhost:%d", envd.Port), Token: sandboxd.Token(key, id)}
	daemon.HTTP = &http.Client{
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
		again, err := try(ctx, daemon, variables)
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

// try makes one request; again reports whether another one may help. No error quotes the daemon's response; because that may quote a value.
func try(ctx context.Context, daemon *sandboxd.Client, variables map[string]string) (again bool, err error) {
	err = daemon.Init(ctx, variables, time.Time{})
	var unreached *problem.Error
	var refused *sandboxd.StatusError
	switch {
	case errors.As(err, &unreached) && unreached.Reason != problem.Unavailable:
		return false, unreached
	case errors.As(err, &refused):
		return false, problem.New(problem.Misconfigured, "envVars: the sandbox's daemon refused them with status %d at port %d",
			refused.Status, envd.Port)
	default:
		return err != nil, err
	}
}

// silent is the error about a daemon that did not respond.
func silent(last error) error {
	return problem.New(problem.Misconfigured, "envVars: the sandbox's daemon did not respond at port %d within %s: %s", envd.Port, patience,
		validate.Clip(last.Error()))
}
