// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"time"

	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
)

// DefaultStartupTimeout applies where neither the request nor the pool has one.
const DefaultStartupTimeout = 2 * time.Minute

// resolve validates a create request and returns it with every default filled in, without its wait mode. The result is sent to
// the worker, and a retry with the same key is compared to it.
func resolve(in *sandboxv1.CreateSandboxRequest, p principal.Principal) (*sandboxv1.CreateSandboxRequest, error) {
	if in.GetNamespace() == "" {
		in = proto.CloneOf(in)
		in.Namespace = "default"
	}
	if err := validate.Create(in).Err(); err != nil {
		return nil, withKey(err, in.GetClaimKey())
	}
	team, user, err := p.Owner(in.GetTeam(), in.GetUser())
	if err != nil {
		return nil, err
	}
	if err := p.CheckNamespace(in.GetNamespace()); err != nil {
		return nil, err
	}
	out := proto.CloneOf(in)
	out.Team, out.User, out.Wait = team, user, sandboxv1.CreateSandboxRequest_WAIT_UNSPECIFIED
	return out, nil
}

// resolve is the function of that name, with the hub's own rules.
func (s *Service) resolve(in *sandboxv1.CreateSandboxRequest, p principal.Principal) (*sandboxv1.CreateSandboxRequest, error) {
	req, err := resolve(in, p)
	if err == nil && s.strict {
		err = validate.Credentials(req).Err()
	}
	if err != nil {
		return nil, err
	}
	return req, nil
}

// withKey names the claim key in an error.
func withKey(err error, key string) error {
	if err == nil || key == "" {
		return err
	}
	e := *problem.FromError(err)
	e.ClaimKey = key
	return &e
}
