// SPDX-License-Identifier: Apache-2.0

package access

import (
	"cmp"
	"fmt"
	"strings"

	"navix.sh/atoll/pkg/problem"
)

// Forbidden returns the error for a caller that does not have a permission anywhere.
func Forbidden(who *Identity, p Permission) error {
	return problem.New(problem.Forbidden, "%s lacks the permission to %s", who.Caller(), p)
}

// TooNarrow returns the error for a call that concerns more than where the caller has the permission.
func TooNarrow(who *Identity, m Method) error {
	if m.Reach == Teams {
		return problem.New(problem.Forbidden,
			"%s is for %s, and an Env is every team's: to %s it needs all teams", who.Caller(), who.bounds(), m.Permission)
	}
	clusters := ", on all clusters"
	if m.ofCluster() {
		clusters = ""
	}
	return problem.New(problem.Forbidden, "%s is for %s, and this is about the whole hub: to %s it needs all teams and all namespaces%s",
		who.Caller(), who.bounds(), m.Permission, clusters)
}

// Caller returns the description of an identity in errors.
func (i *Identity) Caller() string {
	kind := "user"
	switch {
	case i.Kind == KindKey:
		kind = "API key"
	case i.Kind == KindServiceAccount:
		kind = "ServiceAccount"
	case i.Kind == KindOIDC && i.User == "": // a query about a group or a team
		return "a member " + i.Name
	}
	return fmt.Sprintf("%s %q", kind, i.Name)
}

// bounds describes the limits of the identity.
func (i *Identity) bounds() string {
	team, namespaces := fmt.Sprintf("team %q", i.Team), "namespaces "+cmp.Or(strings.Join(i.Namespaces, ", "), "none")
	if i.AllTeams {
		team = "all teams"
	}
	if i.TenantUser != "" {
		team += fmt.Sprintf(" and user %q", i.TenantUser)
	}
	if i.AllNamespaces {
		namespaces = "all namespaces"
	}
	return team + " in " + namespaces
}
