// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"slices"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
)

const (
	// daemonRuntime is the runtime whose daemon takes a claim's environment.
	daemonRuntime = "e2b"
	// endTimeout bounds the release of a sandbox whose environment could not be set.
	endTimeout = 20 * time.Second
)

// Environment sets variables in sandboxes.
type Environment interface {
	// Ready returns why it cannot be set here; nil if it can.
	Ready() error
	// Set sets variables in a running sandbox. The context identifies the caller.
	Set(ctx context.Context, id string, variables map[string]string) error
}

// SetEnvironment has e set the environment of claims. Call it before the first claim; without it claims with one are refused.
func (s *Service) SetEnvironment(e Environment) { s.environment = e }

// OnSent has f told of each claim that a cluster was sent: whether it was served. Call it before the first claim.
func (s *Service) OnSent(f func(env segment.Key, cluster string, ok bool)) { s.sent = f }

// checkEnvironment refuses a claim whose environment could not be set, before anything is claimed.
func (s *Service) checkEnvironment(in *sandboxv1.CreateSandboxRequest) error {
	switch {
	case len(in.GetEnvVars()) == 0:
		return nil
	case s.environment == nil:
		return problem.New(problem.Unimplemented, "envVars: this hub does not set them")
	}
	return s.environment.Ready()
}

// equip sets the environment of a sandbox before it is returned. If that fails, a sandbox that this call has made is released; because
// no caller knows of it. One that an earlier call with its key has returned stays.
func (s *Service) equip(ctx context.Context, sandbox *sandboxv1.Sandbox, variables map[string]string, repeat bool) error {
	if len(variables) == 0 || sandbox.GetPhase() != sandboxv1.Phase_RUNNING {
		return nil // an end is returned as it is
	}
	err := s.set(ctx, sandbox, variables)
	if err == nil || repeat {
		return err
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if _, ending := s.End(late, sandbox.GetClusterId(), sandbox.GetId()); ending != nil {
		s.log.Info("A sandbox without its environment was not released, yet", "sandbox", sandbox.GetId(), "error", ending.Error())
	}
	return err
}

func (s *Service) set(ctx context.Context, sandbox *sandboxv1.Sandbox, variables map[string]string) error {
	has := slices.ContainsFunc(sandbox.GetRuntimes(), func(r *sandboxv1.Runtime) bool { return r.GetName() == daemonRuntime })
	if !has {
		return problem.InvalidField("envVars", fmt.Sprintf("%d of them", len(variables)),
			"none, for an Env whose template does not list the runtime "+daemonRuntime+": no daemon takes them")
	}
	return s.environment.Set(ctx, sandbox.GetId(), variables)
}
