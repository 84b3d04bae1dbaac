// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"slices"
)

// Authorizer determines where an identity has a permission.
type Authorizer interface {
	// Authorize returns a Grant without Scopes and Ask if the identity does not have the permission anywhere.
	Authorize(ctx context.Context, who *Identity, p Permission) (Grant, error)
}

// Grant is the set of places where a permission holds: those that any of Scopes covers, and those for which Ask returns true.
type Grant struct {
	Scopes []Scope
	// Ask reports whether the permission holds in a namespace, for all teams. It is set if an Authorizer can only be asked about one namespace
	// at a time. It must be called during the call for which the Grant was made, and caches its results. It fails if the Authorizer is not
	// available. Nil: Scopes is complete.
	Ask func(namespace string) (bool, error)
	// Away is the error of an Authorizer that was not available: the permission may hold in more places. Nil: the Grant is complete.
	Away error
}

// Empty reports whether the permission holds nowhere, as far as is known.
func (g Grant) Empty() bool { return len(g.Scopes) == 0 && g.Ask == nil }

// Scope is a set of places where a permission holds.
type Scope struct {
	Namespaces    []string
	AllNamespaces bool
	Envs          []string // NAMESPACE/NAME; none: all Envs of the namespaces
	Clusters      []string // none: all
	AllTeams      bool     // of all teams, else of the identity's own team
	Whole         bool     // calls may concern every caller: the reach hub; calls about clusters only for Clusters
	Shared        bool     // calls may concern every team of the namespaces: the reach teams
	From          string   // origin of the permission, such as: binding "ops"
}

// Namespace reports whether the scope covers a namespace, or some Envs in it.
func (s *Scope) Namespace(namespace string) bool {
	return s.AllNamespaces || slices.Contains(s.Namespaces, namespace)
}

// Env reports whether the scope covers an Env.
func (s *Scope) Env(namespace, name string) bool {
	return s.Namespace(namespace) && (len(s.Envs) == 0 || slices.Contains(s.Envs, namespace+"/"+name))
}

// Cluster reports whether the scope covers a cluster.
func (s *Scope) Cluster(id string) bool {
	return len(s.Clusters) == 0 || slices.Contains(s.Clusters, id)
}

// Covers reports whether the scope covers every namespace, Env and cluster that the other one covers.
func (s *Scope) Covers(other *Scope) bool {
	// An empty list means all Envs, or all clusters.
	within := func(all, some []string) bool {
		return len(all) == 0 || len(some) > 0 && !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(all, one) })
	}
	namespaces := !other.AllNamespaces && !slices.ContainsFunc(other.Namespaces, func(n string) bool { return !s.Namespace(n) })
	return (s.AllNamespaces || namespaces) && within(s.Envs, other.Envs) && within(s.Clusters, other.Clusters)
}

// Plain reports whether the scope is limited by namespaces only.
func (s *Scope) Plain() bool { return len(s.Envs) == 0 && len(s.Clusters) == 0 }

// Reaches reports whether the scope suffices for a reach. The call itself checks the clusters that the scope names.
func (s *Scope) Reaches(r Reach) bool {
	switch r {
	case All:
		return s.Whole
	case Teams:
		return s.Shared
	default:
		return true
	}
}

// For returns the part of the Grant that suffices for a reach.
func (g Grant) For(r Reach) Grant {
	if r == Own {
		return g
	}
	out := Grant{Away: g.Away}
	for i := range g.Scopes {
		if g.Scopes[i].Reaches(r) {
			out.Scopes = append(out.Scopes, g.Scopes[i])
		}
	}
	if r == Teams {
		out.Ask = g.Ask
	}
	return out
}
