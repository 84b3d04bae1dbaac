// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"strings"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
)

// A sandbox that a caller may not see is not there, in the same words as one that is not; one that it may see and not release is
// refused by name.
func TestWhatOneMayNotSeeIsNotThere(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 2})
	made := f.create(&sandboxv1.CreateSandboxRequest{Namespace: "default", Env: "demo", Team: "red"})
	missing := "00000000000000000000000000-east"
	policy := access.NewPolicy(&sandboxv1.AccessPolicy{Bindings: []*sandboxv1.RoleBinding{
		{Name: "b", Role: access.Viewer, Namespaces: []string{"default"},
			Subjects: []*sandboxv1.Subject{{Kind: access.SubjectTeam, Name: "red"}}},
		{Name: "c", Role: access.User, Namespaces: []string{"other"}, AllTeams: true,
			Subjects: []*sandboxv1.Subject{{Kind: access.SubjectKey, Name: "k"}}},
	}})
	for name, c := range map[string]struct {
		who    *access.Identity
		reason problem.Reason
	}{
		"a viewer of it":          {&access.Identity{Name: "k", Key: "k", Team: "red"}, problem.Forbidden},
		"a user of another place": {&access.Identity{Name: "k", Key: "k", Team: "blue"}, problem.NotFound},
	} {
		p := access.Permission{Resource: access.Sandboxes, Verb: "delete"}
		look := access.Permission{Resource: access.Sandboxes, Verb: "get"}
		caller := principal.Of(c.who, p, policy.Grant(c.who, p)).WithSeeing(principal.Of(c.who, look, policy.Grant(c.who, look)))
		ctx := principal.With(t.Context(), caller)
		_, err := f.hub.Release(ctx, made.GetId())
		if reasonOf(err) != c.reason {
			t.Fatalf("%s: %v", name, err)
		}
		_, other := f.hub.Release(ctx, missing)
		if reasonOf(other) != problem.NotFound {
			t.Errorf("%s, of one that is not there: %v", name, other)
		}
		if c.reason == problem.NotFound && strings.ReplaceAll(err.Error(), made.GetId(), missing) != other.Error() {
			t.Errorf("%s: %q differs from %q", name, err, other)
		}
		if c.reason == problem.Forbidden && !strings.Contains(err.Error(), "delete sandboxes") {
			t.Errorf("%s: %q does not name the permission", name, err)
		}
	}
	_, err := f.hub.Release(t.Context(), made.GetId())
	must.Succeed(t, err)
}
