// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"sync"

	"navix.sh/atoll/pkg/access"
)

// given holds the last result of each Authorizer for a guest. A review uses it for an Authorizer that does not respond, and for no other;
// because permissions that others withdraw meanwhile must end.
type given struct {
	mu   sync.Mutex
	last map[question]*gift
}

type question struct {
	place      int // index of the Authorizer
	permission access.Permission
}

// gift is the last result of one Authorizer for one permission.
type gift struct {
	mu        sync.Mutex
	scopes    []access.Scope
	asks      bool   // it decides for each namespace
	namespace string // the namespace that it permitted last; empty: none
}

func (g *given) of(q question) *gift {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last == nil {
		g.last = map[question]*gift{}
	}
	if g.last[q] == nil {
		g.last[q] = &gift{}
	}
	return g.last[q]
}

// by returns an Authorizer that records the results of those in may. With recall, it repeats the last result of one that does not respond.
func (g *given) by(may access.Authorizer, recall bool) access.Authorizer {
	all, ok := may.(access.Either)
	if !ok {
		all = access.Either{may}
	}
	out := make(access.Either, len(all))
	for i, one := range all {
		out[i] = giver{given: g, may: one, place: i, recall: recall}
	}
	return out
}

// giver wraps one of the Authorizers of a guest.
type giver struct {
	given  *given
	may    access.Authorizer
	place  int
	recall bool
}

// Authorize implements access.Authorizer.
func (a giver) Authorize(ctx context.Context, who *access.Identity, p access.Permission) (access.Grant, error) {
	grant, err := a.may.Authorize(ctx, who, p)
	if err != nil && !a.recall {
		return access.Grant{}, err
	}
	last := a.given.of(question{a.place, p})
	last.mu.Lock()
	defer last.mu.Unlock()
	if err != nil {
		grant = access.Grant{Scopes: last.scopes}
		if last.asks {
			grant.Ask = func(string) (bool, error) { return false, err }
		}
	}
	last.scopes, last.asks = grant.Scopes, grant.Ask != nil
	if grant.Ask == nil {
		last.namespace = ""
		return grant, nil
	}
	grant.Ask = last.noting(grant.Ask, a.recall)
	return grant, nil
}

func (g *gift) noting(ask func(namespace string) (bool, error), recall bool) func(namespace string) (bool, error) {
	return func(namespace string) (bool, error) {
		held, err := ask(namespace)
		g.mu.Lock()
		defer g.mu.Unlock()
		switch {
		case err != nil && recall:
			return namespace != "" && namespace == g.namespace, nil
		case err == nil && held:
			g.namespace = namespace
		case err == nil && namespace == g.namespace:
			g.namespace = ""
		}
		return held, err
	}
}
