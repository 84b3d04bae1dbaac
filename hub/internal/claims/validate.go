// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
)

// DefaultStartupTimeout applies if neither the request nor the pool sets a timeout.
const DefaultStartupTimeout = 2 * time.Minute

// resolve validates a create request and returns it with all defaults set and without its wait mode. The result is sent to the worker and
// compared with retries of the same key. It does not include the fields for the sandbox's daemon.
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
	if err := p.CheckClaim(team, in.GetNamespace(), in.GetEnv()); err != nil {
		return nil, err
	}
	out := proto.CloneOf(in)
	validate.DropBelongings(out) // only the sandbox's daemon gets them: they are neither stored nor sent to a worker
	if may := p.Clusters(team, in.GetNamespace(), in.GetEnv()); may != nil {
		if out.Clusters, err = within(in, may); err != nil {
			return nil, err
		}
		out.RequireClusters = true
	}
	out.Team, out.User, out.Wait = team, user, sandboxv1.CreateSandboxRequest_WAIT_UNSPECIFIED
	return out, nil
}

// within returns the clusters that the caller may use, the request's preferred ones first.
func within(in *sandboxv1.CreateSandboxRequest, may []string) ([]string, error) {
	out := slices.DeleteFunc(slices.Clone(in.GetClusters()), func(id string) bool { return !slices.Contains(may, id) })
	if in.GetRequireClusters() && len(out) == 0 {
		return nil, problem.New(problem.Forbidden, "clusters: none of %s is open to you, want one of: %s",
			strings.Join(in.GetClusters(), ", "), strings.Join(may, ", "))
	}
	for _, id := range may {
		if !in.GetRequireClusters() && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out, nil
}

// resolve is the function resolve plus the hub's own rules.
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

// withKey adds the claim key to an error.
func withKey(err error, key string) error {
	if err == nil || key == "" {
		return err
	}
	e := *problem.FromError(err)
	e.ClaimKey = key
	return &e
}
