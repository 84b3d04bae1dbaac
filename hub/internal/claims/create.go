// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"context"
	"errors"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/pkg/wallclock"
)

// terms are the options of one call. The record of a key has none of them.
type terms struct {
	wait     sandboxv1.CreateSandboxRequest_Wait
	prepares bool // the call gives the sandbox's daemon an environment before it returns
}

// errLeft is the cancellation cause of a claim without a key whose caller has left.
var errLeft = errors.New("the caller has left")

// Create claims a sandbox. See doc.go for the rules of a claim key.
func (s *Service) Create(ctx context.Context, in *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	began := s.clock.Now()
	sandbox, err := s.create(ctx, in)
	s.metrics.claimed(in.GetClaimKey() != "", s.clock.Since(began), err)
	return sandbox, withKey(err, in.GetClaimKey())
}

func (s *Service) create(ctx context.Context, in *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	req, err := s.resolve(in, principal.From(ctx))
	if err != nil {
		return nil, err
	}
	if err := s.checkEnvironment(in); err != nil {
		return nil, err
	}
	var sandbox *sandboxv1.Sandbox
	repeat, how := false, terms{in.GetWait(), len(validate.Belongings(in)) > 0}
	if req.GetClaimKey() != "" {
		if sandbox, repeat, err = s.createKeyed(ctx, req, how); err == nil {
			if refusal := outcome.Refusal(sandbox); refusal != nil {
				return nil, refusal // the same error as for the call that waited for the sandbox
			}
		}
	} else {
		sandbox, err = s.createUnkeyed(ctx, req, how)
	}
	if err != nil {
		return nil, err
	}
	if err := s.equip(ctx, sandbox, in, repeat); err != nil {
		return nil, err
	}
	return sandbox, nil
}

// createUnkeyed serves a claim without a key.
func (s *Service) createUnkeyed(ctx context.Context, req *sandboxv1.CreateSandboxRequest, how terms) (*sandboxv1.Sandbox, error) {
	timeout := s.startupTimeout(req, nil)
	if left, ok := wallclock.Left(ctx); ok {
		timeout = min(timeout, left)
	}
	// A claim ends with its caller. A caller whose deadline has passed still gets the outcome.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout+grace)
	defer cancel()
	pursued, leave := context.WithCancelCause(bounded)
	defer leave(nil)
	defer context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			leave(errLeft)
		}
	})()
	p := s.newPursuit(req, how, s.clock.Now().Add(timeout))
	p.as = principal.From(ctx)
	sandbox, err := p.run(pursued)
	switch {
	case errors.Is(ctx.Err(), context.Canceled) && err != nil:
		return nil, gone(ctx)
	case err != nil:
		return nil, err
	}
	if ctx.Err() != nil {
		s.endAfter(ending{cluster: sandbox.GetClusterId(), id: sandbox.GetId()})
		return nil, gone(ctx)
	}
	return sandbox, nil
}

// startupTimeout returns how long a claim is pursued. A claim without a timeout may go to several members, each with its own timeout: then
// it is the longest of the members that could serve the claim now, up to MaxStartupTimeout. A claim that has a holder, or may have one, has
// its holder's timeout.
func (s *Service) startupTimeout(req *sandboxv1.CreateSandboxRequest, holder *ledger.Record) time.Duration {
	if d := req.GetStartupTimeout(); d != nil {
		return d.AsDuration()
	}
	view := s.fleet.View(envOf(req))
	if view == nil {
		return DefaultStartupTimeout
	}
	longest := time.Duration(0)
	for i := range view.Len() {
		if c := view.Candidate(i); mayHold(c, req, holder) {
			longest = max(longest, cmp.Or(c.Member().Shape.Get().StartupTimeout, DefaultStartupTimeout))
		}
	}
	return min(cmp.Or(longest, DefaultStartupTimeout), validate.MaxStartupTimeout)
}

// envOf returns the key of a request's Env.
func envOf(req *sandboxv1.CreateSandboxRequest) segment.Key {
	return segment.Key{Namespace: req.GetNamespace(), Name: req.GetEnv()}
}

// mayHold reports whether a member can hold a claim. If the current holder is known, only the holder can.
func mayHold(c router.Candidate, req *sandboxv1.CreateSandboxRequest, holder *ledger.Record) bool {
	if !allows(req, c.Cluster.ID) {
		return false
	}
	m := c.Member()
	if holder != nil {
		return c.Cluster.ID == holder.Cluster && m.Name == holder.Pool
	}
	return c.Cluster.Health().Eligible() && (m.State == segment.Active || m.State == segment.Saturated)
}

// gone returns the error for a caller whose context ended while other callers wait for its claim.
func gone(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return problem.New(problem.Deadline, "the call's own deadline passed before the sandbox was ready")
}
