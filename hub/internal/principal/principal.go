// SPDX-License-Identifier: Apache-2.0

// Package principal identifies the caller, and what it may see and name.
//
// In go a context, a namespace, team or user of a request, or a sandbox; out come the Principal and typed errors.
package principal

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// Principal is the caller. It may see only what its fields name; access to all is explicit.
type Principal struct {
	Name          string
	Team          string // empty: what has no team
	AllTeams      bool
	User          string // empty: every user of the team
	Namespaces    []string
	AllNamespaces bool
	Expires       *time.Time // when the caller's key expires; nil: never
}

type contextKey struct{}

// With attaches the caller to a context.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// From returns the caller. Without one nothing is restricted: that is a hub without credentials, which listens on loopback only.
func From(ctx context.Context) Principal {
	if p, ok := ctx.Value(contextKey{}).(Principal); ok {
		return p
	}
	return Principal{AllTeams: true, AllNamespaces: true}
}

// SeesNamespace reports whether the caller may see a namespace.
func (p Principal) SeesNamespace(namespace string) bool {
	return p.AllNamespaces || slices.Contains(p.Namespaces, namespace)
}

// Restricted reports whether the caller may not see everything.
func (p Principal) Restricted() bool { return !p.AllTeams || p.User != "" || !p.AllNamespaces }

// Sees reports whether the caller may see a sandbox.
func (p Principal) Sees(s *sandboxv1.Sandbox) bool {
	return (p.AllTeams || p.Team == s.GetTeam()) && (p.User == "" || p.User == s.GetUser()) &&
		p.SeesNamespace(s.GetNamespace())
}

// Owner resolves the team and the user of a request against the caller's: the caller's where it has one.
func (p Principal) Owner(team, user string) (ownTeam, ownUser string, err error) {
	if team, err = p.OwnTeam(team); err != nil {
		return "", "", err
	}
	user, err = own("user", user, p.User, p.User == "")
	return team, user, err
}

// OwnTeam is Owner for a team.
func (p Principal) OwnTeam(team string) (string, error) { return own("team", team, p.Team, p.AllTeams) }

func own(field, given, has string, all bool) (string, error) {
	if all || given == has {
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
	valid := cmp.Or(strings.Join(p.Namespaces, ", "), "none: the key names no namespaces")
	err := problem.New(problem.Forbidden, "namespace: %q is not open to you, want one of: %s", namespace, valid)
	err.Fields = []problem.Field{{Field: "namespace", Value: namespace, Valid: valid}}
	return err
}
