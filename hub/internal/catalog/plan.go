// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/types/known/structpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
)

// PlanEnv asks each cluster that has, or would have, a part of an Env which changes it would make. Like the change itself, a plan requires
// a caller that may see all parts.
func (s *Service) PlanEnv(ctx context.Context, in *sandboxv1.PlanEnvRequest) (*sandboxv1.PlanEnvResponse, error) {
	if err := principal.From(ctx).CheckEnv(in.GetNamespace(), in.GetName()); err != nil {
		return nil, err
	}
	ref := envRef(in.GetNamespace(), in.GetName())
	return s.plan(ctx, ref, in.GetEnv(), s.latest(ctx, ref))
}

// PlanTemplate is PlanEnv for a template, in each cluster that has Envs of it.
func (t Templates) PlanTemplate(ctx context.Context, in *sandboxv1.PlanTemplateRequest) (*sandboxv1.PlanEnvResponse, error) {
	ref := templateRef(in.GetName())
	before := t.latest(ctx, ref) // once, as in PutTemplate
	if err := hidden(ctx, before); err != nil {
		return nil, err
	}
	return t.plan(ctx, ref, in.GetTemplate(), before)
}

// plan plans a change of before, the latest record or nil. A nil manifest plans a removal.
func (s *Service) plan(ctx context.Context, ref manifest.Ref, in *structpb.Struct, before *record) (*sandboxv1.PlanEnvResponse, error) {
	var o manifest.Object
	if in != nil {
		var err error
		if o, err = s.read(ctx, ref, in, before); err != nil {
			return nil, err
		}
	} else if before == nil || before.removed() {
		return nil, unknown(ref)
	} else if err := checkParts(ctx, before.objects()...); err != nil {
		return nil, err
	}
	revision := int32(1)
	if before != nil {
		revision = before.Revision + 1
	}
	seen := seenParts(ctx, ref)
	// The checks cover the present and the planned manifest. A rollout that is over may have begun with a manifest for more clusters.
	ids := slices.DeleteFunc(s.concerned(ref, o, before), func(id string) bool { return !seen(id) })
	out := &sandboxv1.PlanEnvResponse{Clusters: make([]*sandboxv1.PlannedCluster, len(ids)), Warnings: s.warnings(ctx, o)}
	var asked sync.WaitGroup
	for i, id := range ids {
		asked.Go(func() { out.Clusters[i] = s.planAt(ctx, id, part{ref: ref, revision: revision, whole: o}) })
	}
	asked.Wait()
	return out, nil
}

// concerned lists the clusters that a change concerns.
func (s *Service) concerned(ref manifest.Ref, o manifest.Object, before *record) (ids []string) {
	if ref.Kind == manifest.EnvKind {
		ids = o.Clusters()
		if before != nil {
			ids = append(ids, before.clusters()...)
		}
	}
	for _, r := range s.state.Load().records {
		if ref.Kind == manifest.TemplateKind && r.Ref.Kind == manifest.EnvKind && r.object.Template() == ref.Name {
			ids = append(ids, r.object.Clusters()...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

var actions = map[federationv1.CatalogOutcome_State]sandboxv1.PlannedCluster_Action{
	federationv1.CatalogOutcome_UNCHANGED:    sandboxv1.PlannedCluster_UNCHANGED,
	federationv1.CatalogOutcome_ABSENT:       sandboxv1.PlannedCluster_UNCHANGED,
	federationv1.CatalogOutcome_WOULD_CREATE: sandboxv1.PlannedCluster_CREATE,
	federationv1.CatalogOutcome_WOULD_CHANGE: sandboxv1.PlannedCluster_CHANGE,
	federationv1.CatalogOutcome_WOULD_REMOVE: sandboxv1.PlannedCluster_REMOVE,
}

func (s *Service) planAt(ctx context.Context, cluster string, p part) *sandboxv1.PlannedCluster {
	out := &sandboxv1.PlannedCluster{ClusterId: cluster}
	key := segment.Key{Namespace: p.ref.Namespace, Name: p.ref.Name}
	_, has := p.of(cluster)
	if has && p.ref.Kind == manifest.EnvKind && !s.opts.Fleet.Serves(cluster, key) {
		out.Action, out.Reason, out.Message = sandboxv1.PlannedCluster_REFUSE, "OutOfScope", "the cluster may not serve this Env"
		return out
	}
	all, err := batches(cluster, []part{p})
	if err != nil {
		out.Action, out.Reason, out.Message = sandboxv1.PlannedCluster_UNKNOWN, string(problem.Internal), err.Error()
		return out
	}
	call := &federationv1.CatalogCall{Mode: federationv1.CatalogCall_PLAN, Objects: all[0]}
	if !has {
		call.Objects, call.Removed = nil, all[0]
	}
	result, err := s.call(ctx, cluster, call)
	if err == nil && len(result.GetOutcomes()) != 1 {
		err = problem.New(problem.Internal, "cluster %s returned %d outcomes, want 1", cluster, len(result.GetOutcomes()))
	}
	if err != nil {
		why := problem.FromError(err)
		out.Action, out.Reason, out.Message = sandboxv1.PlannedCluster_UNKNOWN, string(why.Reason), why.Message
		return out
	}
	got := result.GetOutcomes()[0]
	out.Action = cmp.Or(actions[got.GetState()], sandboxv1.PlannedCluster_REFUSE)
	out.Reason, out.Message = clip.Text(got.GetReason(), maxMessage), clip.Text(got.GetMessage(), maxMessage)
	for _, change := range got.GetChanges()[:min(len(got.GetChanges()), 200)] {
		out.Changes = append(out.Changes, clip.Text(change, maxMessage))
	}
	s.pools(out, key, got.GetChanges())
	return out
}

// pools lists the changes to an Env's pools in a cluster: those that the cluster reports, and those that the changes name.
func (s *Service) pools(out *sandboxv1.PlannedCluster, key segment.Key, changes []string) {
	for _, c := range s.opts.Fleet.Env(key).GetClusters() {
		if c.GetClusterId() != out.GetClusterId() {
			continue
		}
		for _, m := range c.GetMembers() {
			pool := &sandboxv1.PlannedPool{Name: m.GetName(), Action: "Keep", Idle: m.GetIdle(), Running: m.GetRunning()}
			at := ".members[" + m.GetName() + "]"
			for _, change := range changes {
				path, values, _ := strings.Cut(change, ": ")
				switch {
				case strings.HasSuffix(path, at) && strings.HasSuffix(values, "(none)"):
					pool.Action, pool.Message = "Remove", "idle Pods go; sandboxes that run end as they would have"
				case strings.HasSuffix(path, at+".spec.replicas"):
					pool.Action, pool.Message = "Scale", values
				case strings.Contains(path, at), strings.HasPrefix(path, "spec.templateRef"), strings.HasPrefix(path, "spec.overrides"):
					pool.Action, pool.Message = "Refresh", afterChange(path)
				}
			}
			if out.GetAction() == sandboxv1.PlannedCluster_REMOVE {
				pool.Action, pool.Message = "Remove", "idle Pods go; sandboxes that run end as they would have"
			}
			out.Pools = append(out.Pools, pool)
		}
	}
}

// afterChange describes the effect on a pool that a change of its Env does not reach by itself. A pool of another template, instance type
// or resources does not match the Env: its member is Inconsistent, and gets no claims.
func afterChange(path string) string {
	for _, shape := range []string{"spec.templateRef", ".config.inlineResources", ".config.instanceType", ".config.multiplier"} {
		if strings.Contains(path, shape) {
			return "it gets no claims from then on until atollctl envs refresh, which replaces idle Pods"
		}
	}
	return "it goes on as it was made until atollctl envs refresh; idle Pods are replaced then"
}

// ImportEnv adds an Env that was applied in the clusters to the catalogue. If clusters differ in more than their segments, the version that
// most of them have is used, and the differences are returned. ImportEnv fails if a cluster cannot be asked, or refuses; because the
// Env would lack that cluster's part, and a later import is refused.
func (s *Service) ImportEnv(ctx context.Context, in *sandboxv1.ImportEnvRequest) (*sandboxv1.ImportEnvResponse, error) {
	if err := principal.From(ctx).CheckEnv(in.GetNamespace(), in.GetName()); err != nil {
		return nil, err
	}
	ref := envRef(in.GetNamespace(), in.GetName())
	if !in.GetDryRun() {
		if err := s.writable(ref); err != nil {
			return nil, err
		}
	}
	if r := s.state.Load().records[keyOf(ref)]; r != nil && !r.removed() {
		return nil, problem.New(problem.Invalid, "the catalogue has %s already, as revision %d", ref, r.Revision)
	}
	seen := seenParts(ctx, ref)
	ids := slices.DeleteFunc(s.opts.Fleet.ClusterIDs(), func(id string) bool { return !seen(id) })
	found, out := make([]manifest.Object, len(ids)), &sandboxv1.ImportEnvResponse{}
	failures := make([]*sandboxv1.CatalogCluster, len(ids))
	var asked sync.WaitGroup
	for i, id := range ids {
		asked.Go(func() { found[i], failures[i] = s.readAt(ctx, id, ref) })
	}
	asked.Wait()
	var parts []manifest.Object
	var from, away []string
	for i, o := range found {
		if failures[i] != nil {
			out.Clusters, away = append(out.Clusters, failures[i]), append(away, ids[i]+": "+failures[i].GetMessage())
		}
		if part, ok := o.Part(ids[i]); o != nil && ok {
			parts, from = append(parts, part), append(from, ids[i])
			out.Clusters = append(out.Clusters, &sandboxv1.CatalogCluster{ClusterId: ids[i], State: sandboxv1.CatalogCluster_APPLIED})
		}
	}
	if len(away) > 0 && !in.GetDryRun() {
		return nil, problem.New(problem.Unavailable, "%s was not read in every cluster, so that the catalogue's would lack parts: %s", ref,
			clip.Text(strings.Join(away, "; "), maxMessage))
	}
	if len(parts) == 0 {
		return nil, problem.New(problem.NotFound, "no cluster that responded has a segment of its own in %s", ref)
	}
	whole, differences := merge(parts, from)
	out.Differences = differences
	data, err := whole.Encode()
	if err != nil {
		return nil, err
	}
	if out.Manifest, err = toStruct(data); err != nil || in.GetDryRun() {
		return out, err
	}
	if err := s.PutEnv(ctx, &sandboxv1.PutEnvRequest{Namespace: ref.Namespace, Name: ref.Name, Env: out.GetManifest()}); err != nil {
		return nil, err
	}
	out.Catalog = s.Entry(ctx, segment.Key{Namespace: ref.Namespace, Name: ref.Name})
	return out, nil
}

func (s *Service) readAt(ctx context.Context, cluster string, ref manifest.Ref) (manifest.Object, *sandboxv1.CatalogCluster) {
	result, err := s.call(ctx, cluster, &federationv1.CatalogCall{Mode: federationv1.CatalogCall_READ, Objects: []*federationv1.CatalogObject{
		{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name},
	}})
	var o manifest.Object
	reason, found := "Unreachable", result.GetOutcomes()
	switch {
	case err != nil:
	case len(found) != 1:
		err = problem.New(problem.Internal, "cluster %s returned %d outcomes, want 1", cluster, len(found))
	default:
		switch one := found[0]; {
		case len(one.GetManifest()) > 0:
			if o, err = manifest.Parse(one.GetManifest()); err == nil && o.Ref() != ref {
				err = fmt.Errorf("cluster %s returned %s", cluster, clip.Text(o.Ref().String(), maxMessage))
			}
		case one.GetState() != federationv1.CatalogOutcome_ABSENT: // its API server did not respond, or refused
			reason = clip.Text(cmp.Or(one.GetReason(), reason), maxMessage)
			err = problem.New(problem.Unavailable, "cluster %s did not read it: %s", cluster, clip.Text(one.GetMessage(), maxMessage))
		}
	}
	if err != nil {
		return nil, &sandboxv1.CatalogCluster{ClusterId: cluster, State: sandboxv1.CatalogCluster_PENDING, Reason: reason,
			Message: problem.FromError(err).Message}
	}
	if o == nil {
		return nil, nil
	}
	return o.Clean(), nil
}

// merge joins parts to one manifest. Fields outside the segments come from the first part of the largest group that agrees on them.
func merge(parts []manifest.Object, from []string) (manifest.Object, []string) {
	votes := make([]int, len(parts))
	best := 0
	for i := range parts {
		for j := range parts {
			if len(shared(parts[i], parts[j])) == 0 {
				votes[i]++
			}
		}
		if votes[i] > votes[best] {
			best = i
		}
	}
	var differences []string
	for i := range parts {
		for _, d := range shared(parts[best], parts[i]) {
			differences = append(differences, from[i]+": "+d)
		}
	}
	order := append([]manifest.Object{parts[best]}, slices.Delete(slices.Clone(parts), best, best+1)...)
	return manifest.Join(order), differences
}

// shared returns the differences of two parts, without the fields that belong to each cluster.
func shared(a, b manifest.Object) []string {
	return slices.DeleteFunc(manifest.Diff(a, b), func(change string) bool {
		return strings.HasPrefix(change, "spec.clusters") || strings.HasPrefix(change, "spec.autoscaling.groups")
	})
}
