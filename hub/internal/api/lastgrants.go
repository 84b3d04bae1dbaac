// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"sync"

	"navix.sh/atoll/pkg/access"
)

// lastGrants holds the last result of each Authorizer for an open request. A review uses it for an Authorizer that does not respond, and
// for no other; because permissions that others withdraw meanwhile must end.
type lastGrants struct {
	mu   sync.Mutex
	last map[question]*lastGrant
}

type question struct {
	place      int // index of the Authorizer
	permission access.Permission
}

// lastGrant is the last result of one Authorizer for one permission.
type lastGrant struct {
	mu        sync.Mutex
	scopes    []access.Scope
	asks      bool   // it decides for each namespace
	namespace string // the namespace that it permitted last; empty: none
}

func (g *lastGrants) of(q question) *lastGrant {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last == nil {
		g.last = map[question]*lastGrant{}
	}
	if g.last[q] == nil {
		g.last[q] = &lastGrant{}
	}
	return g.last[q]
}

// recording returns an Authorizer that records the results of those in may.
func (g *lastGrants) recording(may access.Authorizer) access.Authorizer { return g.wrap(may, false) }

// recalling is recording that repeats the last result of an Authorizer that does not respond.
func (g *lastGrants) recalling(may access.Authorizer) access.Authorizer { return g.wrap(may, true) }

func (g *lastGrants) wrap(may access.Authorizer, recall bool) access.Authorizer {
	all, ok := may.(access.Either)
	if !ok {
		all = access.Either{may}
	}
	out := make(access.Either, len(all))
	for i, one := range all {
		out[i] = recordingAuthorizer{grants: g, may: one, place: i, recall: recall}
	}
	return out
}

// recordingAuthorizer wraps one of the Authorizers of an open request.
type recordingAuthorizer struct {
	grants *lastGrants
	may    access.Authorizer
	place  int
	recall bool
}

// Authorize implements access.Authorizer.
func (a recordingAuthorizer) Authorize(ctx context.Context, who *access.Identity, p access.Permission) (access.Grant, error) {
	grant, err := a.may.Authorize(ctx, who, p)
	if err != nil && !a.recall {
		return access.Grant{}, err
	}
	last := a.grants.of(question{a.place, p})
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

func (g *lastGrant) noting(ask func(namespace string) (bool, error), recall bool) func(namespace string) (bool, error) {
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
