// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/runtimes"
)

// belongingsOf refuses fields that no sandbox of the pool can have: those for a daemon in a pool without one, and references to Secrets
// that are not allowed. Another cluster may allow them.
func (s *Service) belongingsOf(c *Claim, spec *v1alpha1.SandboxPoolSpec) error {
	fields := c.Belongings
	if len(fields) == 0 {
		fields = validate.Belongings(c.Request)
	}
	if len(fields) > 0 && !runtimes.Lists(spec) {
		return disposition.Fault(problem.InvalidFields(validate.NoDaemon(fields)...))
	}
	refs := c.Request.GetSecrets()
	fault := s.opts.Secrets.Permit(c.Pool.Namespace, refs)
	switch {
	case fault == nil:
		return nil
	case fault.Reason == problem.Invalid:
		return disposition.Fault(fault)
	default:
		return disposition.Refusal(fault)
	}
}

// checkSecrets refuses a claim with references to Secrets that only a person can provide, before a Pod is taken for it. The values are
// read again when the sandbox runs. An API server that does not respond is no reason to refuse.
func (s *Service) checkSecrets(ctx context.Context, c *Claim) error {
	refs := c.Request.GetSecrets()
	if len(refs) == 0 {
		return nil
	}
	_, err := s.opts.Secrets.Read(ctx, c.Pool.Namespace, c.Request.GetTeam(), refs)
	var fault *problem.Error
	if errors.As(err, &fault) && fault.Reason == problem.Misconfigured {
		return disposition.Refusal(fault)
	}
	return nil
}
