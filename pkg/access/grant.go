// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"slices"
)

// Authorizer returns where an identity has a permission.
type Authorizer interface {
	// Authorize returns a Grant without Scopes and Ask if the identity has the permission nowhere.
	Authorize(ctx context.Context, who *Identity, p Permission) (Grant, error)
}

// Grant is where a permission holds: where any of its scopes covers, or Ask says so.
type Grant struct {
	Scopes []Scope
	// Ask reports whether the permission holds in a namespace, for all teams, where an Authorizer can be asked only about one namespace
	// at a time. It is called during the call that the Grant is for, and caches. It returns an error if the Authorizer cannot be asked.
	// Nil: the Scopes are all.
	Ask func(namespace string) (bool, error)
	// Away is the error of an Authorizer that could not be asked at all: the permission may hold in more places. Nil: the rest says all.
	Away error
}

// Empty reports whether the permission holds nowhere.
func (g Grant) Empty() bool { return len(g.Scopes) == 0 && g.Ask == nil }

// Scope is where a permission holds.
type Scope struct {
	Namespaces    []string
	AllNamespaces bool
	Envs          []string // NAMESPACE/NAME; none: all of the namespaces
	Clusters      []string // none: all
	AllTeams      bool     // of all teams; else of the identity's own
	Whole         bool     // it may be about every caller: the reach hub; of what is about clusters, on these Clusters
	Shared        bool     // it may be about every team of the namespaces: the reach teams
	From          string   // what gives it, such as: binding "ops"
}

// Namespace reports whether the scope covers a namespace, or Envs of it.
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

// Covers reports whether the scope covers every namespace, Env and cluster that another one does.
func (s *Scope) Covers(other *Scope) bool {
	// An empty list of Envs or clusters is all of them.
	within := func(all, some []string) bool {
		return len(all) == 0 || len(some) > 0 && !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(all, one) })
	}
	namespaces := !other.AllNamespaces && !slices.ContainsFunc(other.Namespaces, func(n string) bool { return !s.Namespace(n) })
	return (s.AllNamespaces || namespaces) && within(s.Envs, other.Envs) && within(s.Clusters, other.Clusters)
}

// Plain reports whether namespaces alone say what the scope covers.
func (s *Scope) Plain() bool { return len(s.Envs) == 0 && len(s.Clusters) == 0 }

// Reaches reports whether the scope suffices for a reach. Clusters that it names all the same are checked by the call.
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

// For returns the part of a Grant that suffices for a reach.
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
