// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/validation"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/validate"
)

// The bounds of a policy.
const (
	maxRoles    = 200
	maxBindings = 5_000
	maxRules    = 100
	maxListed   = 200 // names in one list
	maxTeams    = 10_000
	maxBytes    = 1 << 20
	maxSubject  = 512 // bytes of a name
)

// changing is the permission to change the policy.
var changing = access.OfMethod(sandboxv1.Access_PutAccess_FullMethodName)

// AccessAPI implements the service Access.
type AccessAPI struct {
	sandboxv1.UnimplementedAccessServer
	*Service
}

// GetAccess returns the policy.
func (a AccessAPI) GetAccess(_ context.Context, in *sandboxv1.GetAccessRequest) (*sandboxv1.AccessPolicy, error) {
	return a.state.Load().shown(in.GetBuiltIn()), nil
}

func (n *state) shown(builtIn bool) *sandboxv1.AccessPolicy {
	out := &sandboxv1.AccessPolicy{}
	if n.stored != nil {
		out = proto.CloneOf(n.stored)
	}
	out.Revision = strconv.FormatUint(n.revision, 10)
	if builtIn {
		out.Roles = append(slices.Clone(access.BuiltIn()), out.GetRoles()...)
	}
	return out
}

// PutAccess replaces the policy. It ignores built-in roles, so that the result of GetAccess can be put.
func (a AccessAPI) PutAccess(ctx context.Context, in *sandboxv1.AccessPolicy) (*sandboxv1.AccessPolicy, error) {
	s := a.Service
	next := proto.CloneOf(in)
	next.Revision, next.Force = "", false
	next.Roles = slices.DeleteFunc(next.Roles, func(r *sandboxv1.Role) bool { return r.GetBuiltIn() })
	if err := checkPolicy(next); err != nil {
		return nil, err
	}
	known := s.state.Load()
	if in.GetRevision() != "" && in.GetRevision() != strconv.FormatUint(known.revision, 10) {
		return nil, changedMeanwhile(in.GetRevision())
	}
	if err := s.keepsRight(ctx, next); err != nil && !in.GetForce() {
		return nil, err
	}
	value, err := protojson.Marshal(next)
	if err != nil {
		return nil, fmt.Errorf("encoding the policy: %w", err)
	}
	if len(value) > maxBytes {
		return nil, problem.InvalidField("roles, bindings, limits", fmt.Sprintf("%d bytes", len(value)), "at most 1 MiB together")
	}
	switch err := s.commit(ctx, policyKey, known.revision, value); {
	case errors.Is(err, store.ErrConflict):
		return nil, changedMeanwhile(in.GetRevision())
	case err != nil:
		return nil, err
	}
	return s.state.Load().shown(false), nil
}

func changedMeanwhile(revision string) error {
	return problem.InvalidField("revision", revision, "the revision of the policy that is there: get it, change that, and put it again")
}

// keepsRight returns an error for a policy under which its caller could not change the policy any more.
func (s *Service) keepsRight(ctx context.Context, next *sandboxv1.AccessPolicy) error {
	caller := principal.From(ctx).Identity
	if caller == nil || s.opts.Authorizer != access.Authorizer(s) {
		return nil // the policy does not decide that
	}
	if access.NewPolicy(next).Grant(caller, changing.Permission).For(changing.Reach).Empty() {
		return problem.New(problem.Forbidden, "under this policy %s could not change the policy any more: put it with force if that is intended",
			caller.Caller())
	}
	return nil
}

// CheckAccess returns whether the caller, or another subject, may do something, or which subjects may.
func (a AccessAPI) CheckAccess(ctx context.Context, in *sandboxv1.CheckAccessRequest) (*sandboxv1.CheckAccessResponse, error) {
	s := a.Service
	q := access.Query{
		Permission: access.Permission{Resource: in.GetResource(), Verb: in.GetVerb()},
		Namespace:  in.GetNamespace(), Env: in.GetEnv(), Cluster: in.GetCluster(),
	}
	reach, err := checkQuery(in, q)
	if err != nil {
		return nil, err
	}
	caller := principal.From(ctx).Identity
	if caller == nil {
		return &sandboxv1.CheckAccessResponse{Allowed: true, Reason: "this hub asks for no credentials: every caller may do everything"}, nil
	}
	who := caller
	if in.GetWho() || in.GetSubject() != nil {
		if err := s.mayRead(ctx, caller); err != nil {
			return nil, err
		}
		if in.GetWho() {
			return &sandboxv1.CheckAccessResponse{Subjects: s.subjectsWith(q, reach)}, nil
		}
		if who, err = s.subject(in.GetSubject()); err != nil {
			return nil, err
		}
	}
	grant, err := s.opts.Authorizer.Authorize(ctx, who, q.Permission)
	if err != nil {
		return nil, err
	}
	out := &sandboxv1.CheckAccessResponse{Caller: who.Name, Team: who.Team, Groups: who.Groups}
	from, err := grant.Holds(q, reach)
	if err != nil {
		return nil, err
	}
	if from != "" {
		out.Allowed, out.Reason = true, from
		return out, nil
	}
	out.Reason = who.Caller() + " lacks the permission to " + q.String() + where(q)
	return out, nil
}

func where(q access.Query) string {
	var at []string
	for _, p := range []struct{ what, name string }{{"namespace", q.Namespace}, {"Env", q.Env}, {"cluster", q.Cluster}} {
		if p.name != "" {
			at = append(at, p.what+" "+validate.Clip(p.name))
		}
	}
	if len(at) == 0 {
		return ""
	}
	return " in " + strings.Join(at, ", ")
}

// checkQuery validates a question.
func checkQuery(in *sandboxv1.CheckAccessRequest, q access.Query) (access.Reach, error) {
	var f faults
	f.Check(slices.Contains(access.Resources(), q.Resource), "resource", validate.Clip(q.Resource),
		"one of: "+strings.Join(access.Resources(), ", "))
	reach, known := access.ReachOf(q.Permission)
	if len(f.Faults) == 0 {
		f.Check(known, "verb", validate.Clip(q.Verb), "one of: "+strings.Join(verbsOf(q.Resource), ", "))
	}
	f.Check(q.Env == "" || q.Namespace != "", "env", validate.Clip(q.Env), "nothing, without a namespace")
	f.Check(!in.GetWho() || in.GetSubject() == nil, "who", "true", "false beside a subject")
	return reach, f.Err()
}

func verbsOf(resource string) (verbs []string) {
	for _, p := range access.Permissions() {
		if p.Resource == resource {
			verbs = append(verbs, p.Verb)
		}
	}
	return verbs
}

// mayRead returns an error for a caller that may not read the policy.
func (s *Service) mayRead(ctx context.Context, caller *access.Identity) error {
	reading := access.OfMethod(sandboxv1.Access_GetAccess_FullMethodName)
	grant, err := s.opts.Authorizer.Authorize(ctx, caller, reading.Permission)
	switch {
	case err != nil:
		return err
	case !grant.For(reading.Reach).Empty():
		return nil
	case grant.Away != nil:
		return grant.Away
	}
	return access.Forbidden(caller, reading.Permission)
}

// subject returns the identity that represents a subject.
func (s *Service) subject(in *sandboxv1.Subject) (*access.Identity, error) {
	name := in.GetName()
	switch in.GetKind() {
	case access.SubjectUser:
		return &access.Identity{Kind: access.KindOIDC, Name: name, User: name, AllNamespaces: true}, nil
	case access.SubjectGroup:
		return &access.Identity{Kind: access.KindOIDC, Name: fmt.Sprintf("of group %q", name), Groups: []string{name}, AllNamespaces: true}, nil
	case access.SubjectTeam:
		return &access.Identity{Kind: access.KindOIDC, Name: fmt.Sprintf("of team %q", name), Team: name, AllNamespaces: true}, nil
	case access.SubjectKey:
		if s.opts.File != nil {
			if who := s.opts.File.Identity(name); who != nil {
				return who, nil
			}
		}
		r, err := s.find(name)
		if err != nil {
			return nil, err
		}
		return r.identity, nil
	default:
		return nil, problem.InvalidField("subject.kind", validate.Clip(in.GetKind()), subjectKinds)
	}
}

const subjectKinds = "User, Group, Key or Team"

// subjectsWith lists the subjects that may do something: subjects of bindings, and keys with such scopes.
func (s *Service) subjectsWith(q access.Query, reach access.Reach) []*sandboxv1.Subject {
	known := s.state.Load()
	out := known.policy.Who(q, reach)
	add := func(who *access.Identity) {
		one := &sandboxv1.Subject{Kind: access.SubjectKey, Name: who.Key}
		// A key's own scopes are known without calling an Authorizer.
		if from, _ := (*access.Policy)(nil).Grant(who, q.Permission).Holds(q, reach); from != "" &&
			!slices.ContainsFunc(out, func(other *sandboxv1.Subject) bool { return access.CompareSubjects(one, other) == 0 }) {
			out = append(out, one)
		}
	}
	if s.opts.File != nil {
		for _, k := range s.opts.File.Shown() {
			add(s.opts.File.Identity(k.GetName()))
		}
	}
	for _, r := range known.keys {
		if !s.inFile(r.Name) && !r.expired(s.opts.Clock.Now()) {
			add(r.identity)
		}
	}
	slices.SortFunc(out, access.CompareSubjects)
	return out
}

// checkPolicy validates a policy.
func checkPolicy(p *sandboxv1.AccessPolicy) error {
	var f faults
	f.Check(len(p.GetRoles()) <= maxRoles, "roles", fmt.Sprint(len(p.GetRoles())), fmt.Sprintf("at most %d", maxRoles))
	f.Check(len(p.GetBindings()) <= maxBindings, "bindings", fmt.Sprint(len(p.GetBindings())), fmt.Sprintf("at most %d", maxBindings))
	f.Check(len(p.GetLimits()) <= maxTeams, "limits", fmt.Sprint(len(p.GetLimits())), fmt.Sprintf("at most %d", maxTeams))
	if err := f.Err(); err != nil {
		return err
	}
	roles := map[string]bool{}
	for _, r := range access.BuiltIn() {
		roles[r.GetName()] = true
	}
	for i, r := range p.GetRoles() {
		field := fmt.Sprintf("roles[%d]", i)
		f.subdomain(field+".name", r.GetName())
		f.Check(!roles[r.GetName()], field+".name", validate.Clip(r.GetName()), "a name that no other role has, built-in ones included")
		roles[r.GetName()] = true
		f.rules(field, r.GetRules())
	}
	names := map[string]bool{}
	for i, b := range p.GetBindings() {
		field := fmt.Sprintf("bindings[%d]", i)
		f.subdomain(field+".name", b.GetName())
		f.Check(!names[b.GetName()], field+".name", validate.Clip(b.GetName()), "a name that no other binding has")
		names[b.GetName()] = true
		f.Check(roles[b.GetRole()], field+".role", validate.Clip(b.GetRole()),
			"a role: viewer, user, developer, env-editor, operator, admin, or one of roles")
		f.binding(field, b)
	}
	teams := map[string]bool{}
	for i, l := range p.GetLimits() {
		field := fmt.Sprintf("limits[%d]", i)
		f.Check(l.GetTeam() != "" && !teams[l.GetTeam()], field+".team", validate.Clip(l.GetTeam()), "a team that no other entry has, or *")
		teams[l.GetTeam()] = true
		f.limits(field+".limits", l.GetLimits())
	}
	return f.Err()
}

func (f *faults) rules(field string, rules []*sandboxv1.Rule) {
	f.Check(len(rules) > 0 && len(rules) <= maxRules, field+".rules", fmt.Sprint(len(rules)), fmt.Sprintf("1 to %d rules", maxRules))
	one := func(field, value string, valid []string) {
		f.Check(value == "*" || slices.Contains(valid, value), field, validate.Clip(value), "* or one of: "+strings.Join(valid, ", "))
	}
	for i, r := range rules {
		at := fmt.Sprintf("%s.rules[%d]", field, i)
		f.Check(len(r.GetResources()) > 0, at+".resources", "", "resources, or *")
		f.Check(len(r.GetVerbs()) > 0, at+".verbs", "", "verbs, or *")
		for j, v := range r.GetResources() {
			one(fmt.Sprintf("%s.resources[%d]", at, j), v, access.Resources())
		}
		for j, v := range r.GetVerbs() {
			one(fmt.Sprintf("%s.verbs[%d]", at, j), v, access.Verbs())
		}
	}
}

func (f *faults) binding(field string, b *sandboxv1.RoleBinding) {
	for list, n := range map[string]int{
		"subjects": len(b.GetSubjects()), "namespaces": len(b.GetNamespaces()), "envs": len(b.GetEnvs()), "clusters": len(b.GetClusters()),
	} {
		f.Check(n <= maxListed && (n > 0 || list == "envs" || list == "clusters"), field+"."+list, fmt.Sprint(n),
			fmt.Sprintf("1 to %d", maxListed))
	}
	for i, s := range b.GetSubjects() {
		at := fmt.Sprintf("%s.subjects[%d]", field, i)
		kinds := []string{access.SubjectUser, access.SubjectGroup, access.SubjectKey, access.SubjectTeam}
		f.Check(slices.Contains(kinds, s.GetKind()), at+".kind", validate.Clip(s.GetKind()), subjectKinds)
		f.Check(s.GetName() != "" && len(s.GetName()) <= maxSubject, at+".name", validate.Clip(s.GetName()), "1 to 512 bytes")
	}
	every := slices.Contains(b.GetNamespaces(), "*")
	if every {
		f.Check(len(b.GetNamespaces()) == 1, field+".namespaces", strings.Join(b.GetNamespaces(), ","), "* alone, or namespaces")
	} else {
		f.namespaces(field+".namespaces", b.GetNamespaces())
	}
	for i, e := range b.GetEnvs() {
		namespace, name, _ := strings.Cut(e, "/")
		f.Check(len(validation.IsDNS1123Label(namespace)) == 0 && validate.IsName(name) &&
			(every || slices.Contains(b.GetNamespaces(), namespace)),
			fmt.Sprintf("%s.envs[%d]", field, i), validate.Clip(e), "NAMESPACE/NAME, in one of the binding's namespaces")
	}
	for i, c := range b.GetClusters() {
		f.Check(validate.IsClusterID(c), fmt.Sprintf("%s.clusters[%d]", field, i), validate.Clip(c), validate.ValidClusterID)
	}
}
