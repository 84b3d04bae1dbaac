// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"context"
	"errors"
	"testing"

	"navix.sh/atoll/pkg/access"
)

type fixed struct {
	grant access.Grant
	err   error
}

func (f fixed) Authorize(context.Context, *access.Identity, access.Permission) (access.Grant, error) {
	return f.grant, f.err
}

func TestEitherAddsAndNeverTakesAway(t *testing.T) {
	scope := func(namespace string) fixed {
		return fixed{grant: access.Grant{Scopes: []access.Scope{{Namespaces: []string{namespace}, From: namespace}}}}
	}
	asked := func(namespace string) fixed {
		return fixed{grant: access.Grant{Ask: func(n string) (bool, error) { return n == namespace, nil }}}
	}
	whole := fixed{grant: access.Grant{Scopes: []access.Scope{{AllNamespaces: true, AllTeams: true, Whole: true, Shared: true, From: "all"}}}}
	away := fixed{err: errors.New("away")}
	for name, tc := range map[string]struct {
		either access.Either
		in     map[string]bool
		fails  bool
		unsure bool // what does not hold may hold
	}{
		"nothing":          {access.Either{fixed{}, fixed{}}, map[string]bool{"a": false}, false, false},
		"both":             {access.Either{scope("a"), scope("b")}, map[string]bool{"a": true, "b": true, "c": false}, false, false},
		"scope and asked":  {access.Either{scope("a"), asked("b")}, map[string]bool{"a": true, "b": true, "c": false}, false, false},
		"asked twice":      {access.Either{asked("a"), asked("b")}, map[string]bool{"a": true, "b": true, "c": false}, false, false},
		"whole, then away": {access.Either{whole, away}, map[string]bool{"a": true}, false, false},
		"away, then whole": {access.Either{away, whole}, map[string]bool{"a": true}, false, false},
		"scope, then away": {access.Either{scope("a"), away}, map[string]bool{"a": true, "b": false}, false, true},
		"away, then asked": {access.Either{away, asked("a")}, map[string]bool{"a": true, "b": false}, false, true},
		"nothing and away": {access.Either{fixed{}, away}, nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			grant, err := tc.either.Authorize(t.Context(), &access.Identity{}, access.Exec)
			if (err != nil) != tc.fails {
				t.Fatalf("error %v", err)
			}
			for namespace, want := range tc.in {
				from, err := grant.Holds(access.Query{Permission: access.Exec, Namespace: namespace}, access.Own)
				if got := from != ""; got != want || (err != nil) != (tc.unsure && !want) {
					t.Errorf("namespace %s: %v, %v, want %v", namespace, got, err, want)
				}
			}
			for _, reach := range []access.Reach{access.Own, access.Teams, access.All} {
				if part := grant.For(reach); (part.Away != nil) != tc.unsure {
					t.Errorf("for the reach %d: the error of what is away is %v, want one: %t", reach, part.Away, tc.unsure)
				}
			}
		})
	}
}
