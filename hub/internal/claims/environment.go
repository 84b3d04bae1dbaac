// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"strings"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/environment"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/validate"
)

// endTimeout bounds the release of a sandbox whose environment could not be set.
const endTimeout = 20 * time.Second

// SetEnvironment sets the Environment that prepares claims. Call it before the first claim. Without it, claims with an environment are
// refused.
func (s *Service) SetEnvironment(e environment.Environment) { s.environment = e }

// OnSent sets the function that is called for each claim that was sent to a cluster, with whether the cluster served it. Call it before the
// first claim.
func (s *Service) OnSent(f func(env segment.Key, cluster string, ok bool)) { s.sent = f }

// checkEnvironment returns an error for a claim whose environment could not be set, before anything is claimed.
func (s *Service) checkEnvironment(in *sandboxv1.CreateSandboxRequest) error {
	fields := validate.Belongings(in)
	switch {
	case len(fields) == 0:
		return nil
	case s.environment == nil:
		return problem.New(problem.Unimplemented, "%s: this hub does not set them", strings.Join(fields, ", "))
	}
	return s.environment.Ready()
}

// equip sets the environment of a sandbox before the sandbox is returned. If that fails, equip releases a sandbox that this call created;
// because no caller knows of it. A sandbox that an earlier call with the key has returned stays.
func (s *Service) equip(ctx context.Context, sandbox *sandboxv1.Sandbox, in *sandboxv1.CreateSandboxRequest, repeat bool) error {
	if outcome.Over(sandbox) || sandbox.GetPhase() == sandboxv1.Phase_PENDING {
		return nil // an ended or pending sandbox is returned as it is
	}
	err := refuseOpenNetwork(sandbox, in)
	if err == nil {
		err = environment.Equip(ctx, s.environment, sandbox, in)
	}
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

// refuseOpenNetwork returns an error for a sandbox whose worker does not know denyEgress.
func refuseOpenNetwork(sandbox *sandboxv1.Sandbox, in *sandboxv1.CreateSandboxRequest) error {
	if !in.GetDenyEgress() || sandbox.GetEgressDenied() {
		return nil
	}
	return problem.New(problem.Misconfigured, "denyEgress: the worker of cluster %s is of an earlier version, which does not deny it",
		sandbox.GetClusterId())
}
