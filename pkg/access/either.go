// SPDX-License-Identifier: Apache-2.0

package access

import (
	"cmp"
	"context"
	"errors"
)

// Either permits what any of its Authorizers permits. It asks them in order, and stops when a permission holds everywhere.
type Either []Authorizer

// Authorize implements Authorizer. A failed Authorizer does not take away what another one permits. Its error is returned if none of the
// others permits anything; otherwise it is stored in the Grant.
func (e Either) Authorize(ctx context.Context, who *Identity, p Permission) (Grant, error) {
	var out Grant
	for _, a := range e {
		grant, err := a.Authorize(ctx, who, p)
		if err != nil {
			out.Away = err
			continue
		}
		out = out.and(grant)
		if out.everywhere() {
			out.Away = nil
			return out, nil
		}
	}
	if out.Empty() {
		return Grant{}, out.Away
	}
	return out, nil
}

func (g Grant) and(other Grant) Grant {
	out := Grant{
		Scopes: append(g.Scopes[:len(g.Scopes):len(g.Scopes)], other.Scopes...), Ask: g.Ask, Away: cmp.Or(g.Away, other.Away),
	}
	switch {
	case g.Ask == nil:
		out.Ask = other.Ask
	case other.Ask != nil:
		out.Ask = func(namespace string) (bool, error) {
			held, failed := g.Ask(namespace)
			if held {
				return true, nil
			}
			held, err := other.Ask(namespace)
			if held {
				return true, nil
			}
			return false, errors.Join(failed, err)
		}
	}
	return out
}

func (g Grant) everywhere() bool {
	for i := range g.Scopes {
		if s := &g.Scopes[i]; s.Whole && s.AllTeams && s.AllNamespaces && s.Plain() {
			return true
		}
	}
	return false
}
