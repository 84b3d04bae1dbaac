// SPDX-License-Identifier: Apache-2.0

package env

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/rollout"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/snapshot"
)

// reasonRefreshed means that a member with a snapshot is rendered again on request.
const reasonRefreshed v1alpha1.ConditionReason = "Refreshed"

// maxRefreshTries is how often a refresh is tried while the Env keeps changing.
const maxRefreshTries = 20

// refreshRequest is what a caller asks for.
type refreshRequest struct {
	members []string // empty: all
	rollout string   // for the pools' annotation; if empty, the pool decides
	dryRun  bool
}

// Refresh renders members again, except for their replicas. The reconciler then applies the new snapshots to the pools. Refresh returns an
// outcome for each member; an error means that nothing was changed.
func (r *Reconciler) Refresh(ctx context.Context, in *sandboxv1.RefreshEnvRequest) (*sandboxv1.RefreshEnvResponse, error) {
	if r.leads != nil && !r.leads() {
		return nil, problem.New(problem.Unavailable, "this worker does not lead its cluster; retry").WithRetryAfter(time.Second)
	}
	request, err := readRefresh(in)
	if err != nil {
		return nil, err
	}
	name := types.NamespacedName{Namespace: in.GetNamespace(), Name: in.GetName()}
	for range maxRefreshTries {
		out, err := r.tryRefresh(ctx, name, request)
		if !errors.Is(err, errStale) {
			return out, err
		}
		if err := wallclock.Sleep(ctx, r.local, controllers.RetryStale); err != nil {
			return nil, err
		}
	}
	return nil, problem.New(problem.Unavailable, "Env %s keeps changing; nothing was refreshed", name).WithRetryAfter(time.Second)
}

func readRefresh(in *sandboxv1.RefreshEnvRequest) (refreshRequest, error) {
	request := refreshRequest{members: in.GetMembers(), rollout: in.GetMaxUnavailable(), dryRun: in.GetDryRun()}
	_, err := rollout.Parse(request.rollout)
	return request, err
}

func (r *Reconciler) tryRefresh(
	ctx context.Context, name types.NamespacedName, request refreshRequest,
) (*sandboxv1.RefreshEnvResponse, error) {
	o, err := r.gather(ctx, name)
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, r.noEnv(ctx, name)
	}
	if r.managedByOther(o) {
		return nil, problem.New(problem.Unavailable,
			"another controller manages Env %s or a pool of it, and this worker writes nothing to them; see docs/moving-over.md",
			name).WithRetryAfter(time.Minute)
	}
	p, err := decideRefresh(o, request)
	if err != nil {
		return nil, err
	}
	a := &actor{Reconciler: r, o: o}
	if err := a.admitRefresh(ctx, p, request.dryRun); err != nil {
		return nil, err
	}
	changes, err := a.tryEdits(ctx, p)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		return nil, problem.New(problem.Invalid, "the API server refuses what the members would be: %w", err)
	}
	if err != nil {
		return nil, err
	}
	out := &sandboxv1.RefreshEnvResponse{}
	var edits []*memberPlan
	for i := range p.members {
		m := &p.members[i]
		result := &sandboxv1.RefreshedMember{
			ClusterId: r.clusterID, Name: m.name, Reason: string(m.reason), Message: m.message,
			Outcome: sandboxv1.RefreshedMember_REFUSED,
		}
		if m.verb == verbAdmit {
			result.Outcome, result.Changes = sandboxv1.RefreshedMember_UNCHANGED, changes[m.name]
			if len(result.GetChanges()) > 0 {
				result.Outcome = sandboxv1.RefreshedMember_REFRESHED
				if request.dryRun {
					result.Outcome = sandboxv1.RefreshedMember_WOULD_REFRESH
				}
				edits = append(edits, m)
			}
		}
		out.Members = append(out.Members, result)
	}
	if request.dryRun || len(edits) == 0 {
		return out, nil
	}
	return out, a.refreshAll(ctx, edits)
}

// admitRefresh asks plugins about the refreshed members. A member keeps its old snapshot unless all of its replicas are admitted with the
// new one.
func (a *actor) admitRefresh(ctx context.Context, p *plan, dryRun bool) error {
	for i := range p.members {
		m := &p.members[i]
		if m.verb != verbAdmit {
			continue
		}
		before, err := m.snapshot.Pool(a.o.Env.Namespace, m.name)
		if err != nil {
			return err
		}
		change := &admission.Change{
			Env: client.ObjectKeyFromObject(a.o.Env), Key: m.key, Pool: before.DeepCopy(), From: a.o.keeps(m.name, before), To: m.replicas,
			Probe: dryRun,
		}
		verdict, err := a.admission.PreCreatePool(ctx, change)
		if err != nil {
			return fmt.Errorf("asking about member %s: %w", m.name, err)
		}
		if !verdict.Whole(m.replicas) {
			m.verb, m.reason, m.message = verbRefuse, v1alpha1.ConditionReason(verdict.Reason), "it stays as it is: "+verdict.Message
			continue
		}
		if err := m.snapshot.Edit(before, change.Pool); err != nil {
			return fmt.Errorf("the changes of admission plugins to member %s: %w", m.name, err)
		}
	}
	return nil
}

// keeps returns how many Pods a refreshed member's pool already has. A lowered limit takes none of them away, and does not deny them a new
// image. It returns 0 if the Pods need other resources, because plugins then count them as new ones.
func (o *observation) keeps(name string, as *v1alpha1.SandboxPool) int32 {
	for _, m := range o.members() {
		if m.Name == name && snapshot.Has(m) && sameNeeds(&m.Spec.Template.Spec, &as.Spec.Template.Spec) {
			return m.Spec.Replicas
		}
	}
	return 0
}

// sameNeeds reports whether the Pods of two specs request the same resources, container by container.
func sameNeeds(a, b *corev1.PodSpec) bool {
	same := func(a, b corev1.Container) bool { return snapshot.SameResources(&a.Resources, &b.Resources) }
	return slices.EqualFunc(a.Containers, b.Containers, same) && slices.EqualFunc(a.InitContainers, b.InitContainers, same) &&
		equality.Semantic.DeepEqual(a.Resources, b.Resources) && equality.Semantic.DeepEqual(a.Overhead, b.Overhead)
}

// refreshAll freezes the rendered members. Unlike in a reconcile, a lost race is an error, upon which the caller retries the refresh.
func (a *actor) refreshAll(ctx context.Context, edits []*memberPlan) error {
	if err := a.writeEdits(ctx, edits); err != nil {
		return err
	}
	for _, m := range edits {
		a.metrics.actions.WithLabelValues(string(reasonRefreshed)).Inc()
		a.recordEdit(ctx, m)
	}
	return nil
}

// noEnv returns an error that lists the existing Envs.
func (r *Reconciler) noEnv(ctx context.Context, name types.NamespacedName) error {
	all := &v1alpha1.SandboxEnvList{}
	if err := r.client.List(ctx, all, client.InNamespace(name.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing Envs: %w", err)
	}
	var names []string
	for i := range all.Items {
		names = append(names, all.Items[i].Name)
	}
	slices.Sort(names)
	return problem.New(problem.NotFound, "no Env %s in this cluster; namespace %s has %s", name, name.Namespace, listed(names))
}

// listed formats a list for a message.
func listed(names []string) string { return cmp.Or(clip.Names(names, 20), "none") }

// decideRefresh returns the plan of a refresh. Members that cannot be rendered stay as they are. It depends on its arguments alone.
func decideRefresh(o *observation, request refreshRequest) (*plan, error) {
	known := map[string]*v1alpha1.EnvClusterMember{}
	for _, member := range o.members() {
		known[member.Name] = member
	}
	names := slices.Compact(slices.Sorted(slices.Values(request.members)))
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(known))
	}
	p := &plan{}
	for _, name := range names {
		member := known[name]
		if member == nil {
			return nil, problem.New(problem.NotFound, "Env %s/%s has no member %q in cluster %s; it has %s",
				o.Env.Namespace, o.Env.Name, name, o.clusterID, listed(slices.Sorted(maps.Keys(known))))
		}
		p.members = append(p.members, decideMemberRefresh(o, member, request))
	}
	return p, nil
}

func decideMemberRefresh(o *observation, member *v1alpha1.EnvClusterMember, request refreshRequest) memberPlan {
	pool := o.pools[member.Name]
	p := memberPlan{name: member.Name, verb: verbRefuse}
	switch {
	case o.Env.Spec.Mode == v1alpha1.SandboxEnvModeOnDemandJob:
		p.reason, p.message = v1alpha1.ReasonModeNotSupported, "nothing is done in mode OnDemandJob"
		return p
	case pool != nil && !owns(o.Env, pool) && beingAdopted(o, pool):
		p.reason, p.message = reasonPoolAdopting, "its pool is being adopted; retry later"
		return p
	case pool != nil && !owns(o.Env, pool):
		return decideNotOwned(o, p, pool)
	case pool != nil && terminating(pool):
		p.reason, p.message = reasonPoolTerminating, "its pool is being deleted; refresh it when there is a new one"
		return p
	case pool != nil && !snapshot.Has(member):
		p.reason, p.message = reasonSnapshotLost, "its snapshot was lost, and is being taken back from the live pool; retry later"
		return p
	}
	p = decideAdmission(o, p, member, nil)
	if p.verb != verbAdmit {
		return p
	}
	if snapshot.Has(member) {
		p.reason, p.message, p.replicas = reasonRefreshed, "", member.Spec.Replicas
		p.snapshot.SetReplicas(p.replicas)
		if note, ok := member.Metadata.Annotations[v1alpha1.PartlyAdmittedAnnotationKey]; ok {
			p.snapshot.Annotations[v1alpha1.PartlyAdmittedAnnotationKey] = note // the refresh sets no such annotation itself
		}
	}
	if request.rollout != "" {
		p.snapshot.Annotations[v1alpha1.RolloutAnnotationKey] = request.rollout
	}
	return p
}

// tryEdits dry-runs a plan's edits, because only the API server knows the defaults and what it refuses. It returns what would change in
// each rendered member.
func (a *actor) tryEdits(ctx context.Context, p *plan) (map[string][]string, error) {
	edits := editsOf(p)
	if len(edits) == 0 {
		return nil, nil
	}
	before, err := a.document(ctx)
	if err != nil {
		return nil, err
	}
	ofSpec, ofStatus := before.split(edits)
	changes := map[string][]string{}
	if len(ofSpec) > 0 {
		answer, err := a.patchSpec(ctx, before, ofSpec, client.DryRunAll)
		if err == nil {
			err = compare(before, answer, ofSpec, changes)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(ofStatus) > 0 {
		answer, err := a.patchStatus(ctx, before, ofStatus, client.DryRunAll)
		if err == nil {
			err = compare(before, answer, ofStatus, changes)
		}
		if err != nil {
			return nil, err
		}
	}
	return changes, nil
}

// compare adds the differences that the edits make to each member.
func compare(before, after *envDoc, edits []*memberPlan, changes map[string][]string) error {
	for _, m := range edits {
		was, is := before.member(m.name), after.member(m.name)
		if was == nil || is == nil {
			return fmt.Errorf("member %s: %w", m.name, errStale)
		}
		changes[m.name] = snapshot.Differences(was.doc, is.doc)
	}
	return nil
}
