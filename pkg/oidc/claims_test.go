// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"slices"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/access"
)

func TestIdentityOfClaims(t *testing.T) {
	many := make([]any, maxGroups+1)
	for i := range many {
		many[i] = "g"
	}
	type claims = map[string]any
	for name, tc := range map[string]struct {
		issuer string // its settings
		claims claims
		want   string // USER GROUPS TEAM, or part of the error
	}{
		"defaults":        {"", claims{"sub": "u", "groups": []any{"a", "b"}}, "u [a b] "},
		"one group":       {"", claims{"sub": "u", "groups": "a"}, "u [a] "},
		"prefixes":        {"prefixes: {user: 'p:', groups: 'q:'}", claims{"sub": "u", "groups": "a"}, "p:u [q:a] "},
		"nested":          {"claims: {groups: realm.roles}", claims{"sub": "u", "realm": claims{"roles": []any{"a"}}}, "u [a] "},
		"name with a dot": {"claims: {user: 'https://x.y/user'}", claims{"sub": "s", "https://x.y/user": "u"}, "u [] "},
		"team of a claim": {"claims: {team: t}", claims{"sub": "u", "t": "red"}, "u [] red"},
		"team of a group": {"teams: [{group: a, team: red}, {group: b, team: blue}]",
			claims{"sub": "u", "groups": []any{"b", "a"}}, "u [b a] red"},
		"team not allowed":    {"claims: {team: t}\n  allowedTeams: [blue]", claims{"sub": "u", "t": "red"}, `claim "t" names team "red"`},
		"required":            {"requiredClaims: {hd: example.com}", claims{"sub": "u", "hd": "example.com"}, "u [] "},
		"required, missing":   {"requiredClaims: {hd: example.com}", claims{"sub": "u"}, `claim "hd"`},
		"mail":                {"claims: {user: email}", claims{"email": "a@b", "email_verified": true}, "a@b [] "},
		"mail not verified":   {"claims: {user: email}", claims{"email": "a@b", "email_verified": false}, "not verified"},
		"mail of no word":     {"claims: {user: email}", claims{"email": "a@b"}, "not verified"},
		"mail, false as text": {"claims: {user: email}", claims{"email": "a@b", "email_verified": "false"}, "not verified"},
		"mail as a group":     {"claims: {groups: email}", claims{"sub": "u", "email": "a@b"}, "not verified"},
		"mail as a team":      {"claims: {team: email}", claims{"sub": "u", "email": "a@b"}, "not verified"},
		"mail required":       {"requiredClaims: {email: a@b}", claims{"sub": "u", "email": "a@b"}, "not verified"},
		"mail of no use":      {"", claims{"sub": "u", "email": "a@b"}, "u [] "},
		"no user":             {"", claims{"groups": "a"}, `claim "sub"`},
		"user with newline":   {"", claims{"sub": "a\nb"}, `claim "sub"`},
		"long user":           {"", claims{"sub": strings.Repeat("a", 257)}, `claim "sub"`},
		"groups are numbers":  {"", claims{"sub": "u", "groups": []any{1.0}}, `claim "groups"`},
		"too many groups":     {"", claims{"sub": "u", "groups": many}, "at most 1000"},
		// An issuer that speaks for Kubernetes names is not believed.
		"system user":  {"", claims{"sub": "system:serviceaccount:kube-system:x"}, "only Kubernetes"},
		"system group": {"", claims{"sub": "u", "groups": []any{"system:masters", "a"}}, "u [a] "},
		"account": {"kubernetes: true", claims{"sub": "system:serviceaccount:ci:r", "groups": "system:masters"},
			"system:serviceaccount:ci:r [system:serviceaccounts system:serviceaccounts:ci system:authenticated] "},
		"account of team": {"kubernetes: true\n  teams: [{group: 'system:serviceaccounts:ci', team: red}]",
			claims{"sub": "system:serviceaccount:ci:r"}, "red"},
		"admin":          {"admins: [ops]", claims{"sub": "u", "groups": []any{"a", "ops"}}, "u [a ops] "},
		"not an account": {"kubernetes: true", claims{"sub": "system:admin"}, "not of a ServiceAccount"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := Parse([]byte("issuers:\n- url: https://a.example\n  audiences: [x]\n  " + tc.issuer))
			must.Succeed(t, err)
			who, err := config.Issuers[0].identity(tc.claims)
			var got string
			if err != nil {
				got = err.Error()
			} else {
				got = who.User + " [" + strings.Join(who.Groups, " ") + "] " + who.Team
			}
			if !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if err == nil && slices.Contains(who.Roles, access.Admin) != (name == "admin") {
				t.Errorf("roles %q", who.Roles)
			}
			if err == nil && slices.Contains(who.Groups, "system:masters") {
				t.Error("the caller is a master of the cluster")
			}
		})
	}
}
