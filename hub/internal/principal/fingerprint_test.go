// SPDX-License-Identifier: Apache-2.0

package principal

import (
	"testing"
	"time"

	"navix.sh/atoll/pkg/access"
)

func TestFingerprint(t *testing.T) {
	permission := access.Permission{Resource: access.Sandboxes, Verb: "create"}
	of := func(name, team string, scopes ...access.Scope) Principal {
		now := time.Now() // of a token that is renewed
		return Of(&access.Identity{Name: name, Team: team, Expires: &now}, permission, access.Grant{Scopes: scopes})
	}
	whole := access.Scope{Namespaces: []string{"default"}}
	one := of("a", "red", whole).Fingerprint()
	if again := of("a", "red", whole).Fingerprint(); one == "" || again != one {
		t.Errorf("the same caller has %q and %q", one, again)
	}
	narrow := access.Scope{Namespaces: []string{"default"}, Envs: []string{"default/python"}}
	for name, other := range map[string]Principal{
		"another name": of("b", "red", whole), "another team": of("a", "blue", whole), "another namespace": of("a", "red"),
		"one Env": of("a", "red", narrow), "another permission": of("a", "red", whole).As(access.Permission{Resource: access.Clusters}),
		"seen elsewhere": of("a", "red", whole).WithSeeing(of("a", "red", narrow)), "no credentials": From(t.Context()),
	} {
		if other.Fingerprint() == one || other.Fingerprint() == "" {
			t.Errorf("%s: the fingerprint is %q", name, other.Fingerprint())
		}
	}
	asked := Of(&access.Identity{Name: "a"}, permission, access.Grant{Ask: func(string) (bool, error) { return true, nil }})
	if got := asked.Fingerprint() + of("a", "red", whole).WithSeeing(asked).Fingerprint(); got != "" {
		t.Errorf("a caller whose rights are asked elsewhere has %q", got)
	}
}
