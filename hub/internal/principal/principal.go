// SPDX-License-Identifier: Apache-2.0

// Package principal identifies the caller, and what the caller may see and name.
//
// In: a context, a namespace, team or user of a request, or a sandbox. Out: the Principal and typed errors. A Principal is restricted to
// where its caller has the permission of the called method (package access), so that a service only asks whether a namespace, an Env, a
// cluster or a sandbox is the caller's.
package principal

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
)

// Principal is the caller. The caller may see only what the fields name. Access to all must be explicit.
type Principal struct {
	Name          string
	Team          string // empty: objects without a team
	AllTeams      bool   // in at least one namespace, see narrow
	User          string // empty: every user of the team
	Namespaces    []string
	AllNamespaces bool
	Expires       *time.Time // when the caller's key expires; nil: never

	Identity   *access.Identity  // nil: a hub without credentials
	Permission access.Permission // of the method; empty: none

	// narrow restricts the caller further than teams and namespaces can: to Envs, clusters, and teams in some namespaces. Nil: no further
	// restriction.
	narrow  []access.Scope
	ask     func(namespace string) bool // see access.Grant; nil: narrow is complete
	asked   *asked                      // errors of ask
	seeing  *Principal                  // where the caller may see sandboxes; nil: where this Principal permits it
	reached *reached                    // what the caller reached; nil: not recorded
}

type contextKey struct{}

// With attaches the caller to a context.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// From returns the caller. A context without a caller is unrestricted: it belongs to a hub without credentials, which listens on loopback
// only.
func From(ctx context.Context) Principal {
	if p, ok := ctx.Value(contextKey{}).(Principal); ok {
		return p
	}
	return Principal{AllTeams: true, AllNamespaces: true}
}

// None returns a Principal that may see nothing. The zero Principal sees every cluster, because nothing narrows it.
func None() Principal { return Principal{narrow: []access.Scope{}} }

// Of returns the Principal of an identity that has a permission.
func Of(who *access.Identity, p access.Permission, grant access.Grant) Principal {
	failures := &asked{away: grant.Away}
	out := Principal{
		Name: who.Name, Team: who.Team, AllTeams: who.AllTeams || grant.Ask != nil, User: who.TenantUser, Expires: who.Expires,
		Identity: who, Permission: p, ask: failures.ask(grant.Ask), asked: failures,
	}
	scopes := grant.Scopes
	if i := slices.IndexFunc(scopes, func(s access.Scope) bool { return s.Plain() && s.AllNamespaces && s.AllTeams }); i >= 0 {
		scopes = scopes[i : i+1] // it covers the others
	}
	simple := true
	for i := range scopes {
		s := &scopes[i]
		simple = simple && s.Plain() && s.AllTeams == scopes[0].AllTeams
		out.AllTeams = out.AllTeams || s.AllTeams
		out.AllNamespaces = out.AllNamespaces || s.AllNamespaces
		for _, n := range s.Namespaces {
			if !slices.Contains(out.Namespaces, n) {
				out.Namespaces = append(out.Namespaces, n)
			}
		}
	}
	if out.AllNamespaces {
		out.Namespaces = nil
	}
	if !simple || grant.Ask != nil && len(scopes) > 0 {
		out.narrow = scopes
	}
	return out
}

// Account returns the account whose share of a cluster's tunnels a caller uses: its team's, or its own if it has no team; because a caller
// for all teams could reach the sandboxes of any team. A hub without credentials has one account.
func (p Principal) Account() string {
	switch {
	case p.Team != "":
		return fmt.Sprintf("team %q", p.Team)
	case p.Name != "":
		return fmt.Sprintf("API key %q", p.Name)
	default:
		return ""
	}
}

// As returns the principal with another permission in the same places.
func (p Principal) As(other access.Permission) Principal {
	p.Permission = other
	return p
}

// WithSeeing returns the principal with the places where the caller may see sandboxes, which may be more than where it may change them.
func (p Principal) WithSeeing(look Principal) Principal {
	p.seeing = &look
	return p
}

// Seeing returns the principal for seeing sandboxes.
func (p Principal) Seeing() Principal {
	if p.seeing != nil {
		return *p.seeing
	}
	return p
}

// Only returns the only namespace that the caller may see, or "" if there are several.
func (p Principal) Only() string {
	if p.AllNamespaces || p.ask != nil || len(p.Namespaces) != 1 {
		return ""
	}
	return p.Namespaces[0]
}

// SeesNamespace reports whether the caller may see a namespace, or Envs in it.
func (p Principal) SeesNamespace(namespace string) bool {
	return p.AllNamespaces || slices.Contains(p.Namespaces, namespace) || p.ask != nil && p.ask(namespace)
}

// place is the place of a present or future sandbox. An empty cluster means any.
type place struct{ namespace, env, cluster string }

// holds reports whether the permission holds at a place for a team.
func (p Principal) holds(at place, team string) bool {
	own := team == p.Team
	if p.narrow == nil && p.ask == nil {
		return (p.AllTeams || own) && p.SeesNamespace(at.namespace)
	}
	return slices.ContainsFunc(p.narrow, func(s access.Scope) bool { return (own || s.AllTeams) && covers(&s, at) }) ||
		p.ask != nil && p.ask(at.namespace)
}

func covers(s *access.Scope, at place) bool {
	return (at.env == "" && s.Namespace(at.namespace) || at.env != "" && s.Env(at.namespace, at.env)) &&
		(at.cluster == "" || s.Cluster(at.cluster))
}

// SeesEnv reports whether the caller may see an Env.
func (p Principal) SeesEnv(namespace, name string) bool {
	return p.SeesNamespace(namespace) && (p.narrow == nil || p.ask != nil && p.ask(namespace) ||
		slices.ContainsFunc(p.narrow, func(s access.Scope) bool { return s.Env(namespace, name) }))
}

// BoundToEnvs reports whether the caller may see some Envs of a namespace only.
func (p Principal) BoundToEnvs() bool {
	return slices.ContainsFunc(p.narrow, func(s access.Scope) bool { return len(s.Envs) > 0 })
}

// SeesCluster reports whether the caller may see a cluster.
func (p Principal) SeesCluster(id string) bool {
	return p.narrow == nil || p.ask != nil || slices.ContainsFunc(p.narrow, func(s access.Scope) bool { return s.Cluster(id) })
}

// Restricted reports whether the caller may not see everything.
func (p Principal) Restricted() bool {
	return !p.AllTeams || p.User != "" || !p.AllNamespaces || p.narrow != nil || p.seeing != nil && p.seeing.Restricted()
}

// Sees reports whether the caller may see a sandbox.
func (p Principal) Sees(s *sandboxv1.Sandbox) bool {
	return (p.User == "" || p.User == s.GetUser()) && p.holds(place{s.GetNamespace(), s.GetEnv(), s.GetClusterId()}, s.GetTeam())
}

// SeesClaim reports whether the caller may see a claim that was sent to a cluster. An empty cluster means that it is not known.
func (p Principal) SeesClaim(team, namespace, env, cluster string) bool {
	return p.holds(place{namespace, env, cluster}, team)
}

// Clusters returns the clusters to which the caller may send a claim for a team and an Env, or nil if it may use all.
func (p Principal) Clusters(team, namespace, env string) []string {
	if p.narrow == nil || p.ask != nil && p.ask(namespace) {
		return nil
	}
	var out []string
	for i := range p.narrow {
		s := &p.narrow[i]
		if team != p.Team && !s.AllTeams || !covers(s, place{namespace, env, ""}) {
			continue
		}
		if len(s.Clusters) == 0 {
			return nil
		}
		out = append(out, s.Clusters...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Owner returns the team and the user of a request. Where the caller has a team or user of its own, the request may name no other.
func (p Principal) Owner(team, user string) (ownTeam, ownUser string, err error) {
	if team, err = p.OwnTeam(team); err != nil {
		return "", "", err
	}
	user, err = own("user", user, p.User, p.User == "")
	return team, user, err
}

// OwnTeam is Owner for the team only.
func (p Principal) OwnTeam(team string) (string, error) {
	return own("team", cmp.Or(team, p.Team), p.Team, p.AllTeams)
}

// ListedTeam is OwnTeam for a list: if the caller may see all teams and the request names none, all teams are listed.
func (p Principal) ListedTeam(team string) (string, error) {
	return own("team", team, p.Team, p.AllTeams)
}

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

// CheckNamespace returns an error for a namespace that is not the caller's.
func (p Principal) CheckNamespace(namespace string) error {
	if p.SeesNamespace(namespace) {
		return nil
	}
	valid := cmp.Or(strings.Join(p.Namespaces, ", "), "none: the key names no namespaces")
	err := problem.New(problem.Forbidden, "namespace: %q is not open to you%s, want one of: %s", namespace, p.wanted(), valid)
	err.Fields = []problem.Field{{Field: "namespace", Value: namespace, Valid: valid}}
	return err
}

// CheckEnv returns an error for an Env that is not the caller's. The error does not reveal whether the Env exists.
func (p Principal) CheckEnv(namespace, name string) error {
	if err := p.CheckNamespace(namespace); err != nil || p.SeesEnv(namespace, name) {
		return err
	}
	return p.forbidden("Env " + namespace + "/" + name)
}

// CheckClaim returns an error for a team's claim on an Env if the caller may not make it.
func (p Principal) CheckClaim(team, namespace, env string) error {
	if err := p.CheckEnv(namespace, env); err != nil || p.holds(place{namespace, env, ""}, team) {
		return err
	}
	return p.forbidden("team \"" + team + "\" in namespace " + namespace)
}

// CheckCluster returns an error for a cluster that is not the caller's.
func (p Principal) CheckCluster(id string) error {
	if p.SeesCluster(id) {
		p.reached.cluster(id)
		return nil
	}
	return p.forbidden("cluster " + id)
}

// CheckPart returns an error for the part of an Env in a cluster that is not the caller's.
func (p Principal) CheckPart(namespace, env, cluster string) error {
	if p.SeesPart(namespace, env, cluster) {
		return nil
	}
	return p.forbidden("the part of Env " + namespace + "/" + env + " in cluster " + cluster)
}

// CheckParts returns an error for an Env with parts in clusters that are not the caller's. The error does not name them.
func (p Principal) CheckParts(namespace, env string, clusters []string) error {
	if !slices.ContainsFunc(clusters, func(id string) bool { return !p.SeesPart(namespace, env, id) }) {
		return nil
	}
	return problem.New(problem.Forbidden, "Env %s/%s has parts in clusters that are not open to you%s", namespace, env, p.wanted())
}

// Check returns an error for a sandbox that the caller may see but may not use this method on.
func (p Principal) Check(s *sandboxv1.Sandbox) error {
	if p.Sees(s) {
		p.reached.sandbox(s)
		return nil
	}
	return p.forbidden("sandbox " + s.GetId() + " in namespace " + s.GetNamespace())
}

func (p Principal) forbidden(what string) error {
	return problem.New(problem.Forbidden, "%s is not open to you%s", what, p.wanted())
}

// wanted returns a text that names the permission of the call.
func (p Principal) wanted() string {
	if p.Permission.Verb == "" {
		return ""
	}
	return ": you lack the permission to " + p.Permission.String() + " there"
}

// Fingerprint returns equal strings for two principals that are the Same. It returns "" if an Authorizer decides for each call.
func (p Principal) Fingerprint() string {
	look := ""
	if p.seeing != nil {
		if look = p.seeing.Fingerprint(); look == "" {
			return ""
		}
	}
	if p.ask != nil {
		return ""
	}
	text, err := json.Marshal([]any{endless(p.Identity), p.Name, p.Team, p.AllTeams, p.User, p.Namespaces, p.AllNamespaces, p.Permission,
		p.narrow, look})
	if err != nil {
		return ""
	}
	return string(text)
}

// Same reports whether two principals have the same permissions, as far as is known without asking an Authorizer. It ignores when they
// expire.
func (p Principal) Same(other Principal) bool {
	asks := (p.ask == nil) == (other.ask == nil) && (p.seeing == nil) == (other.seeing == nil)
	if !asks || p.seeing != nil && !p.seeing.Same(*other.seeing) {
		return false
	}
	for _, one := range []*Principal{&p, &other} {
		one.ask, one.seeing, one.asked, one.reached = nil, nil, nil, nil
		one.Expires, one.Identity = nil, endless(one.Identity)
	}
	return reflect.DeepEqual(p, other)
}

// endless returns an identity without its expiry, which a key's rotation changes.
func endless(who *access.Identity) *access.Identity {
	if who == nil {
		return nil
	}
	out := *who
	out.Expires = nil
	return &out
}
