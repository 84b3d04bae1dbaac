// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/podtemplate"
	"navix.sh/atoll/worker/internal/replicas"
	"navix.sh/atoll/worker/internal/sandboxcache"
	"navix.sh/atoll/worker/internal/snapshot"
)

// actor carries out one plan. Every write follows a live read of the Env at the observed generation.
type actor struct {
	*Reconciler
	o *observation
	// read is the current Env, or readErr the error of reading it. Both are nil until document is called.
	read    *envDoc
	readErr error
	// stale is set when an action was abandoned because the Env or a pool is not as it was observed.
	stale bool
	// later is the time until the first pool that waits may be created, or 0 if no pool waits.
	later       time.Duration
	eventCounts []eventCount
}

// eventCount counts the Events of one kind that mayRecord was asked about.
type eventCount struct {
	reason v1alpha1.ConditionReason
	action verb
	count  int
}

// maxEvents limits the Events of a kind that one plan records about its members. One more Event counts the rest. Each Event is a write, and
// an Env may have many members.
const maxEvents = 4

// act carries out a plan: first it writes the Env, then the pools one by one. If a pool is refused, the reason becomes its member's
// message. act returns whether an object changed meanwhile and an action was abandoned. later is when to come back for pools that wait for
// their creation, or 0 if there are none.
func (r *Reconciler) act(ctx context.Context, o *observation, p *plan) (stale bool, later time.Duration, err error) {
	a := &actor{Reconciler: r, o: o}
	failures := []error{a.admit(ctx, p), a.editEnv(ctx, p)}
	for i := range p.members {
		m := &p.members[i]
		switch m.verb {
		case verbCreate:
			failures = append(failures, a.settle(ctx, m, a.create(ctx, m)))
		case verbRepair:
			failures = append(failures, a.settle(ctx, m, a.repair(ctx, m)))
		case verbRefuse, verbWait:
			a.recordRefusal(m)
		}
	}
	for _, name := range p.orphans {
		failures = append(failures, a.count(ctx, verbDelete, a.deleteOrphan(ctx, name)))
	}
	a.recordRest()
	return a.stale, a.later, errors.Join(failures...)
}

// settle counts the outcome of a member's action, and reports a failure in the Env's status.
func (a *actor) settle(ctx context.Context, m *memberPlan, err error) error {
	if err = a.count(ctx, m.verb, err); err != nil {
		m.message = clip.Text(err.Error(), podtemplate.LongestMessage)
		if m.verb == verbRepair && refusedForGood(err) {
			m.unrepaired = true
			a.recordUnrepaired(m)
		}
	}
	return err
}

// refusedForGood reports whether the API server will refuse the same request again.
func refusedForGood(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// recordUnrepaired records an Event unless the Env's status already reports it.
func (a *actor) recordUnrepaired(m *memberPlan) {
	for _, c := range a.o.Env.Status.Conditions {
		if c.Type == v1alpha1.SandboxEnvConditionReady && strings.Contains(c.Message, m.message) {
			return
		}
	}
	a.record(m.name, corev1.EventTypeWarning, reasonRepairRefused, verbRepair, m.name+": "+m.message)
}

// count counts an action's outcome. It returns the error, or nil for a lost race or a refusal, which are not failures.
func (a *actor) count(ctx context.Context, v verb, err error) error {
	switch {
	case errors.Is(err, errRefused), errors.Is(err, errLater):
		return nil
	case err == nil:
		a.metrics.actions.WithLabelValues(string(v)).Inc()
	case errors.Is(err, errStale):
		a.stale = true
		a.metrics.conflicts.Inc()
		log.FromContext(ctx).V(1).Info("abandoned until the next reconcile", "action", v, "cause", err)
		return nil
	default:
		a.metrics.failures.WithLabelValues(string(v)).Inc()
	}
	return err
}

// document returns the current Env. It reads the Env once; each write replaces it with its response.
func (a *actor) document(ctx context.Context) (*envDoc, error) {
	if a.read == nil && a.readErr == nil {
		a.read, a.readErr = a.readLive(ctx, a.o)
	}
	return a.read, a.readErr
}

// member returns a member as observed, and its position in the live document.
func (a *actor) member(ctx context.Context, name string) (*v1alpha1.EnvClusterMember, *memberAt, error) {
	doc, err := a.document(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, member := range a.o.members() {
		if at := doc.member(name); at != nil && member.Name == name {
			return member, at, nil
		}
	}
	return nil, nil, fmt.Errorf("member %s: %w", name, errStale)
}

// errLater means that the pool may not be created yet.
var errLater = errors.New("the pool may not be created yet")

func (a *actor) create(ctx context.Context, m *memberPlan) error {
	if a.readErr != nil {
		return a.readErr // before it uses up a reservation
	}
	if wait := a.creations.wait(types.NamespacedName{Namespace: a.o.Env.Namespace, Name: m.name}); wait > 0 {
		if a.later == 0 || wait < a.later {
			a.later = wait
		}
		return errLater // before the live read
	}
	member, at, err := a.member(ctx, m.name)
	if err != nil {
		return err
	}
	pool := &unstructured.Unstructured{Object: snapshot.NewPool(a.o.Env, member, runtime.DeepCopyJSON(at.spec()))}
	err = a.client.Create(ctx, pool, client.FieldOwner(controllers.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("pool %s: %w", m.name, errStale)
	}
	if err != nil {
		return fmt.Errorf("creating pool %s: %w", m.name, err)
	}
	a.logAndRecord(ctx, m.name, corev1.EventTypeNormal, v1alpha1.ReasonPoolCreated, verbCreate,
		"created pool %s with %d replicas from its snapshot", m.name, member.Spec.Replicas)
	return nil
}

// repair makes the live pool match its snapshot. It works on documents, because a merge patch replaces lists whole, and one made from Go
// types would drop the fields that this build does not know.
func (a *actor) repair(ctx context.Context, m *memberPlan) error {
	member, at, err := a.member(ctx, m.name)
	if err != nil {
		return err
	}
	live, err := a.readPool(ctx, m.name)
	if err != nil {
		return err
	}
	body, err := snapshot.Repair(live, a.o.pools[m.name], a.o.Env.Name, member, runtime.DeepCopyJSON(at.spec()))
	if err != nil || body == nil {
		return err
	}
	err = a.client.Patch(ctx, live, client.RawPatch(types.MergePatchType, body), client.FieldOwner(controllers.FieldManager))
	if patch.LostRace(err) {
		return fmt.Errorf("pool %s: %w", m.name, errStale)
	}
	if err != nil {
		return fmt.Errorf("repairing pool %s: %w", m.name, err)
	}
	m.matches = true
	for _, point := range m.drift {
		if point.What == snapshot.Replicas && a.o.autoscaled(member.Config.ScalingGroup) && replicas.PoolSetByUs(a.o.pools[m.name]) {
			continue // not drift: the autoscaler has changed the Env, and reports it
		}
		format := "pool %s had drifted from its snapshot; repaired %s"
		if m.reason == v1alpha1.ReasonPoolUpdated {
			format = "pool %s: the Env has changed; updated %s"
		}
		a.logAndRecord(ctx, m.name, corev1.EventTypeNormal, m.reason, verbRepair+verb(" "+point.What), format, m.name, point)
	}
	return nil
}

// readPool reads a pool's document live, and returns errStale if it is not as observed.
func (a *actor) readPool(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	doc, same, err := sandboxcache.LivePool(ctx, a.live, a.o.pools[name])
	if err != nil {
		return nil, err
	}
	if !same {
		return nil, fmt.Errorf("pool %s: %w", name, errStale)
	}
	return doc, nil
}

// deleteOrphan deletes a pool that no member names. It reads the Env live, because an Env in a lagging cache may lack the member that a
// pool was just created for.
func (a *actor) deleteOrphan(ctx context.Context, name string) error {
	doc, err := a.document(ctx)
	if err != nil {
		return err
	}
	if doc.member(name) != nil {
		return fmt.Errorf("member %s: %w", name, errStale)
	}
	pool := a.o.pools[name]
	if err := a.mayDelete(ctx, pool); err != nil {
		return err
	}
	err = a.client.Delete(ctx, &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: name}},
		client.Preconditions{UID: &pool.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if patch.LostRace(err) {
		return fmt.Errorf("pool %s: %w", name, errStale)
	}
	if err != nil {
		return fmt.Errorf("deleting pool %s: %w", name, err)
	}
	a.logAndRecord(ctx, name, corev1.EventTypeNormal, v1alpha1.ReasonOrphansCleaned, verbDelete,
		"deleted pool %s, which no member names any more; its running sandboxes end on their own terms", name)
	return nil
}

// recordRefusal records an Event when a member becomes blocked, and no further Event while it stays blocked.
func (a *actor) recordRefusal(m *memberPlan) {
	if segment := a.o.observedLocally(); segment != nil {
		for i := range segment.ObservedMembers {
			if seen := &segment.ObservedMembers[i]; seen.Name == m.name && seen.State == m.state {
				return
			}
		}
	}
	a.record(m.name, corev1.EventTypeWarning, m.reason, m.verb, m.name+": "+m.message)
}

// logAndRecord logs a note about a member and records it as an Event. It records at most maxEvents normal Events of a kind.
func (a *actor) logAndRecord(
	ctx context.Context, member, eventType string, reason v1alpha1.ConditionReason, action verb, format string, args ...any,
) {
	note := fmt.Sprintf(format, args...)
	if eventType != corev1.EventTypeNormal || a.mayRecord(reason, action) {
		a.record(member, eventType, reason, action, note)
	}
	log.FromContext(ctx).Info(note, "pool", member, "reason", reason)
}

// mayRecord counts an Event of a kind, and reports whether it is one of the first maxEvents.
func (a *actor) mayRecord(reason v1alpha1.ConditionReason, action verb) bool {
	i := slices.IndexFunc(a.eventCounts, func(t eventCount) bool { return t.reason == reason && t.action == action })
	if i < 0 {
		i, a.eventCounts = len(a.eventCounts), append(a.eventCounts, eventCount{reason: reason, action: action})
	}
	a.eventCounts[i].count++
	return a.eventCounts[i].count <= maxEvents
}

// recordRest records how many Events mayRecord suppressed.
func (a *actor) recordRest() {
	for _, t := range a.eventCounts {
		if more := t.count - maxEvents; more > 0 {
			a.record(a.o.Env.Name, corev1.EventTypeNormal, t.reason, t.action, fmt.Sprintf("the same for %d more members", more))
		}
	}
}

// record creates an Event about the Env, related to a member's pool. Events that differ only in their note are merged and keep
// the first note, so Events that must stay apart differ in pool, reason or action.
func (a *actor) record(member, eventType string, reason v1alpha1.ConditionReason, action verb, note string) {
	pool := a.o.pools[member]
	if pool == nil {
		pool = &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: a.o.Env.Namespace, Name: member}}
	}
	a.recorder.Eventf(a.o.Env, pool, eventType, string(reason), clip.Text(string(action), 128), "%s", clip.Text(note, 1000))
}
