// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"fmt"
	"slices"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/access"
)

// BootstrapName is the name of the first key.
const BootstrapName = "bootstrap"

// boundAdmin reports whether a binding grants the role admin everywhere.
func (s *Service) boundAdmin() bool {
	return slices.ContainsFunc(s.state.Load().stored.GetBindings(), func(b *sandboxv1.RoleBinding) bool {
		return b.GetRole() == access.Admin && slices.Contains(b.GetNamespaces(), "*") && len(b.GetEnvs()) == 0
	})
}

// Bootstrap creates the first key, for everything, and returns its token. It returns "" if the hub has a valid key for everything.
func (s *Service) Bootstrap(ctx context.Context) (token string, err error) {
	now := s.opts.Clock.Now().UTC().Truncate(time.Second)
	for _, r := range s.state.Load().keys {
		if r.identity.Unbound() && slices.Contains(r.identity.Roles, access.Admin) && !r.expired(now) && r.Name != BootstrapName {
			return "", nil
		}
	}
	if s.opts.File != nil || s.boundAdmin() {
		return "", nil
	}
	revision := uint64(0)
	if before := s.state.Load().keys[BootstrapName]; before != nil {
		if !before.expired(now) {
			return "", nil
		}
		revision = before.revision
	}
	r := &record{
		Name: BootstrapName, AllTeams: true, AllNamespaces: true, Scopes: []string{"admin"}, Created: now, CreatedBy: "the hub's start",
	}
	r.setValidity(now, DefaultValidity)
	key, err := s.mint(ctx, r, revision)
	if err != nil {
		return "", fmt.Errorf("making the first API key: %w", err)
	}
	return key.GetToken(), nil
}
