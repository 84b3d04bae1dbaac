// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"navix.sh/atoll/pkg/access"
)

const (
	system    = "system:" // prefix of names that are reserved for Kubernetes
	maxName   = 256       // bytes
	maxGroups = 1000
)

func reserved(name string) bool { return strings.HasPrefix(name, system) }

// identity returns the identity that the claims of a valid token describe.
func (i *Issuer) identity(claims map[string]any) (*access.Identity, error) {
	for name, want := range i.RequiredClaims {
		if got, _ := lookup(claims, name).(string); got != want {
			return nil, fmt.Errorf("claim %q is not what is required", name)
		}
	}
	user, err := text(claims, i.Claims.User)
	if err != nil {
		return nil, err
	}
	if i.readsMail() && claims[claimMail] != nil && claims["email_verified"] != true {
		return nil, fmt.Errorf("claim %q is not verified by the issuer, want a claim email_verified that is true", claimMail)
	}
	// Callers of an issuer have no limits of their own: bindings determine what they may do.
	who := &access.Identity{Kind: access.KindOIDC, Issuer: i.URL, AllNamespaces: true}
	who.UID, _ = claims[claimSub].(string)
	var groups []string
	if i.Kubernetes {
		groups, err = accountGroups(user)
		who.Kind = access.KindServiceAccount
	} else {
		groups, err = list(claims, i.Claims.Groups)
	}
	if err != nil {
		return nil, err
	}
	if who.Team, err = i.team(claims, groups); err != nil {
		return nil, err
	}
	if who.User = i.Prefixes.User + user; reserved(who.User) && !i.Kubernetes {
		return nil, fmt.Errorf("claim %q begins with %s, which only Kubernetes names do", i.Claims.User, system)
	}
	who.Name = who.User
	if slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(i.Admins, g) }) {
		who.Roles, who.AllTeams = []string{access.Admin}, true
	}
	for _, g := range groups {
		if g = i.Prefixes.Groups + g; !reserved(g) || i.Kubernetes {
			who.Groups = append(who.Groups, g)
		}
	}
	return who, nil
}

// readsMail reports whether a caller's email address determines its name, or whether it is admitted.
func (i *Issuer) readsMail() bool {
	_, required := i.RequiredClaims[claimMail]
	return required || i.Claims.User == claimMail || i.Claims.Groups == claimMail || i.Claims.Team == claimMail
}

// team returns the team of a caller: the value of its claim, else the team of the first group that has one.
func (i *Issuer) team(claims map[string]any, groups []string) (string, error) {
	if i.Claims.Team != "" && lookup(claims, i.Claims.Team) != nil {
		team, err := text(claims, i.Claims.Team)
		if err != nil {
			return "", err
		}
		if len(i.AllowedTeams) > 0 && !slices.Contains(i.AllowedTeams, team) && !slices.Contains(i.AllowedTeams, anyTeam) {
			return "", fmt.Errorf("claim %q names team %q, which the issuer may not", i.Claims.Team, team)
		}
		return team, nil
	}
	for _, t := range i.Teams {
		if slices.Contains(groups, t.Group) {
			return t.Team, nil
		}
	}
	return "", nil
}

// accountGroups returns the groups of a ServiceAccount, as an API server defines them.
func accountGroups(user string) ([]string, error) {
	parts := strings.Split(user, ":")
	if len(parts) != 4 || parts[0] != "system" || parts[1] != "serviceaccount" || parts[2] == "" || parts[3] == "" {
		return nil, fmt.Errorf("claim %q is not of a ServiceAccount, want system:serviceaccount:NAMESPACE:NAME", claimSub)
	}
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + parts[2], "system:authenticated"}, nil
}

// lookup returns a claim by its name, or by its path through objects.
func lookup(claims map[string]any, name string) any {
	if value, ok := claims[name]; ok {
		return value
	}
	head, rest, nested := strings.Cut(name, ".")
	if inner, ok := claims[head].(map[string]any); ok && nested {
		return lookup(inner, rest)
	}
	return nil
}

func text(claims map[string]any, name string) (string, error) {
	value, ok := lookup(claims, name).(string)
	if !ok || !valid(value) {
		return "", fmt.Errorf("claim %q is missing or not valid, want 1 to %d bytes of printable text", name, maxName)
	}
	return value, nil
}

// list reads a claim that is a string, a list of strings, or missing.
func list(claims map[string]any, name string) (out []string, err error) {
	var all []any
	switch value := lookup(claims, name).(type) {
	case nil:
	case string:
		all = []any{value}
	case []any:
		all = value
	default:
		return nil, fmt.Errorf("claim %q is not valid, want a list of texts", name)
	}
	if len(all) > maxGroups {
		return nil, fmt.Errorf("claim %q has %d entries, want at most %d", name, len(all), maxGroups)
	}
	for _, one := range all {
		value, ok := one.(string)
		if !ok || !valid(value) {
			return nil, fmt.Errorf("claim %q has an entry that is not valid, want texts of 1 to %d printable bytes", name, maxName)
		}
		out = append(out, value)
	}
	return out, nil
}

func valid(name string) bool {
	return name != "" && len(name) <= maxName && utf8.ValidString(name) &&
		!strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}
