// SPDX-License-Identifier: Apache-2.0

// Package principal says who calls, and what that caller may see and name.
//
// In go a context, a namespace, team or user of a request, or a sandbox; out come the Principal and typed errors.
package principal

import (
	"context"
	"slices"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// Principal is who calls. Empty fields restrict nothing.
type Principal struct {
	Name       string
	Team       string
	User       string
	Namespaces []string
	Expires    *time.Time // when the key ends that the caller showed; nil: never
}

type contextKey struct{}

// With attaches the caller to a context.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// From returns the caller. Without one nothing is restricted: that is a hub without credentials, which listens on loopback
// alone.
func From(ctx context.Context) Principal {
	p, _ := ctx.Value(contextKey{}).(Principal)
	return p
}

// SeesNamespace reports whether the caller may know what is in a namespace.
func (p Principal) SeesNamespace(namespace string) bool {
	return len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, namespace)
}

// Restricted reports whether there is anything that the caller may not see.
func (p Principal) Restricted() bool { return p.Team != "" || p.User != "" || len(p.Namespaces) > 0 }

// Sees reports whether a sandbox exists as far as the caller is concerned.
func (p Principal) Sees(s *sandboxv1.Sandbox) bool {
	return (p.Team == "" || p.Team == s.GetTeam()) && (p.User == "" || p.User == s.GetUser()) &&
		p.SeesNamespace(s.GetNamespace())
}

// Owner resolves the team and the user that a request names against the caller's: the caller's where it has one.
func (p Principal) Owner(team, user string) (ownTeam, ownUser string, err error) {
	if team, err = p.OwnTeam(team); err != nil {
		return "", "", err
	}
	user, err = own("user", user, p.User)
	return team, user, err
}

// OwnTeam is Owner for a team.
func (p Principal) OwnTeam(team string) (string, error) { return own("team", team, p.Team) }

func own(field, given, has string) (string, error) {
	if has == "" || given == has {
		return given, nil
	}
	if given == "" {
		return has, nil
	}
	err := problem.New(problem.Forbidden, "%s: %q is not yours, want %q", field, given, has)
	err.Fields = []problem.Field{{Field: field, Value: given, Valid: has}}
	return "", err
}

// CheckNamespace refuses a namespace that is not the caller's.
func (p Principal) CheckNamespace(namespace string) error {
	if p.SeesNamespace(namespace) {
		return nil
	}
	valid := p.Namespaces[0]
	for _, n := range p.Namespaces[1:] {
		valid += ", " + n
	}
	err := problem.New(problem.Forbidden, "namespace: %q is not open to you, want one of: %s", namespace, valid)
	err.Fields = []problem.Field{{Field: "namespace", Value: namespace, Valid: valid}}
	return err
}
