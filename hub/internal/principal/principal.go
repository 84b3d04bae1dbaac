// SPDX-License-Identifier: Apache-2.0

// Package principal identifies the caller, and what it may see and name.
//
// In go a context, a namespace, team or user of a request, or a sandbox; out come the Principal and typed errors. A Principal is narrowed
// to where its caller has the permission of the method that is called (package access), so that a service asks only whether a namespace,
// an Env, a cluster or a sandbox is the caller's.
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

// Principal is the caller. It may see only what its fields name; access to all is explicit.
type Principal struct {
	Name          string
	Team          string // empty: what has no team
	AllTeams      bool   // in some namespace at least, see narrow
	User          string // empty: every user of the team
	Namespaces    []string
	AllNamespaces bool
	Expires       *time.Time // when the caller's key expires; nil: never

	Identity   *access.Identity  // nil: a hub without credentials
	Permission access.Permission // of the method; empty: none

	// narrow says more than teams and namespaces can: Envs, clusters, teams in some namespaces. Nil: these say all.
	narrow []access.Scope
	ask    func(namespace string) bool // see access.Grant; nil: narrow says all
	asked  *asked                      // the errors of ask
	look   *Principal                  // where the caller may see sandboxes; nil: here
	met    *met                        // what it was let to; nil: that is not noted
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

// Of returns an identity where it has a permission.
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

// Account returns whose share of a cluster's tunnels a caller uses: its team's, or its own if it has none; because a caller for all teams
// could reach the sandboxes of any. A hub without credentials has one caller.
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

// As returns the principal with another permission, where it has this one.
func (p Principal) As(other access.Permission) Principal {
	p.Permission = other
	return p
}

// Looking returns the principal with where it may see sandboxes, which may be more than where it may change them.
func (p Principal) Looking(look Principal) Principal {
	p.look = &look
	return p
}

// Look returns the caller where it may see sandboxes.
func (p Principal) Look() Principal {
	if p.look != nil {
		return *p.look
	}
	return p
}

// Only returns the one namespace that the caller may see, "" if there are others.
func (p Principal) Only() string {
	if p.AllNamespaces || p.ask != nil || len(p.Namespaces) != 1 {
		return ""
	}
	return p.Namespaces[0]
}

// SeesNamespace reports whether the caller may see a namespace, or Envs of it.
func (p Principal) SeesNamespace(namespace string) bool {
	return p.AllNamespaces || slices.Contains(p.Namespaces, namespace) || p.ask != nil && p.ask(namespace)
}

// place is where a sandbox is, or will be. An empty cluster is any.
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

// SeesCluster reports whether the caller may see a cluster.
func (p Principal) SeesCluster(id string) bool {
	return p.narrow == nil || p.ask != nil || slices.ContainsFunc(p.narrow, func(s access.Scope) bool { return s.Cluster(id) })
}

// Restricted reports whether the caller may not see everything.
func (p Principal) Restricted() bool {
	return !p.AllTeams || p.User != "" || !p.AllNamespaces || p.narrow != nil || p.look != nil && p.look.Restricted()
}

// Sees reports whether the caller may see a sandbox.
func (p Principal) Sees(s *sandboxv1.Sandbox) bool {
	return (p.User == "" || p.User == s.GetUser()) && p.holds(place{s.GetNamespace(), s.GetEnv(), s.GetClusterId()}, s.GetTeam())
}

// SeesClaim reports whether the caller may see a claim that went to a cluster. Without one it is not known.
func (p Principal) SeesClaim(team, namespace, env, cluster string) bool {
	return p.holds(place{namespace, env, cluster}, team)
}

// Clusters returns the clusters to which a claim of the caller may go, in an Env and for a team; nil: all.
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

// Owner resolves the team and the user of a request against the caller's: the caller's where it has one.
func (p Principal) Owner(team, user string) (ownTeam, ownUser string, err error) {
	if team, err = p.OwnTeam(team); err != nil {
		return "", "", err
	}
	user, err = own("user", user, p.User, p.User == "")
	return team, user, err
}

// OwnTeam is Owner for a team.
func (p Principal) OwnTeam(team string) (string, error) {
	return own("team", cmp.Or(team, p.Team), p.Team, p.AllTeams)
}

// ListedTeam is OwnTeam for a list, where a caller that may see all teams and names none lists all.
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

// CheckNamespace refuses a namespace that is not the caller's.
func (p Principal) CheckNamespace(namespace string) error {
	if p.SeesNamespace(namespace) {
		return nil
	}
	valid := cmp.Or(strings.Join(p.Namespaces, ", "), "none: the key names no namespaces")
	err := problem.New(problem.Forbidden, "namespace: %q is not open to you%s, want one of: %s", namespace, p.wanted(), valid)
	err.Fields = []problem.Field{{Field: "namespace", Value: namespace, Valid: valid}}
	return err
}

// CheckEnv refuses an Env that is not the caller's, in the same words whether it exists or not.
func (p Principal) CheckEnv(namespace, name string) error {
	if err := p.CheckNamespace(namespace); err != nil || p.SeesEnv(namespace, name) {
		return err
	}
	return p.forbidden("Env " + namespace + "/" + name)
}

// CheckClaim refuses a claim of a team on an Env that is not the caller's.
func (p Principal) CheckClaim(team, namespace, env string) error {
	if err := p.CheckEnv(namespace, env); err != nil || p.holds(place{namespace, env, ""}, team) {
		return err
	}
	return p.forbidden("team \"" + team + "\" in namespace " + namespace)
}

// CheckCluster refuses a cluster that is not the caller's.
func (p Principal) CheckCluster(id string) error {
	if p.SeesCluster(id) {
		p.met.cluster(id)
		return nil
	}
	return p.forbidden("cluster " + id)
}

// CheckPart refuses the part of an Env in a cluster that is not the caller's.
func (p Principal) CheckPart(namespace, env, cluster string) error {
	if p.SeesPart(namespace, env, cluster) {
		return nil
	}
	return p.forbidden("the part of Env " + namespace + "/" + env + " in cluster " + cluster)
}

// CheckParts refuses an Env with parts in clusters that are not the caller's, and names none of these.
func (p Principal) CheckParts(namespace, env string, clusters []string) error {
	if !slices.ContainsFunc(clusters, func(id string) bool { return !p.SeesPart(namespace, env, id) }) {
		return nil
	}
	return problem.New(problem.Forbidden, "Env %s/%s has parts in clusters that are not open to you%s", namespace, env, p.wanted())
}

// Check refuses a sandbox that the caller may see and not do this to.
func (p Principal) Check(s *sandboxv1.Sandbox) error {
	if p.Sees(s) {
		p.met.sandbox(s)
		return nil
	}
	return p.forbidden("sandbox " + s.GetId() + " in namespace " + s.GetNamespace())
}

func (p Principal) forbidden(what string) error {
	return problem.New(problem.Forbidden, "%s is not open to you%s", what, p.wanted())
}

// wanted names the permission of the call.
func (p Principal) wanted() string {
	if p.Permission.Verb == "" {
		return ""
	}
	return ": you lack the permission to " + p.Permission.String() + " there"
}

// Fingerprint is the same for two principals that are the Same. It is empty where what a caller may do is asked elsewhere, call by call.
func (p Principal) Fingerprint() string {
	look := ""
	if p.look != nil {
		if look = p.look.Fingerprint(); look == "" {
			return ""
		}
	}
	if p.ask != nil {
		return ""
	}
	who := access.Identity{}
	if p.Identity != nil {
		who = *p.Identity
		who.Expires = nil
	}
	text, err := json.Marshal([]any{who, p.Name, p.Team, p.AllTeams, p.User, p.Namespaces, p.AllNamespaces, p.Permission, p.narrow, look})
	if err != nil {
		return ""
	}
	return string(text)
}

// Same reports whether two principals may do the same, as far as can be told without asking, and until whenever that is.
func (p Principal) Same(other Principal) bool {
	asks := (p.ask == nil) == (other.ask == nil) && (p.look == nil) == (other.look == nil)
	if !asks || p.look != nil && !p.look.Same(*other.look) {
		return false
	}
	for _, one := range []*Principal{&p, &other} {
		one.ask, one.look, one.asked, one.met = nil, nil, nil, nil
		one.Expires, one.Identity = nil, endless(one.Identity)
	}
	return reflect.DeepEqual(p, other)
}

// endless returns an identity without when it ends, which the rotation of a key moves.
func endless(who *access.Identity) *access.Identity {
	if who == nil {
		return nil
	}
	out := *who
	out.Expires = nil
	return &out
}
