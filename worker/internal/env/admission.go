// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/podtemplate"
)

const (
	// After a refusal, a plugin is asked again at the time that it named, within these bounds, or after askAgain if it named none. Up to a
	// fifth of the wait is added. A changed member is asked about immediately.
	askAgain       = 30 * time.Second
	askAgainMin    = 5 * time.Second
	askAgainMax    = 5 * time.Minute
	askAgainSpread = 0.2
)

// errRefused means that a plugin refused an action. It is not a failure.
var errRefused = errors.New("refused")

// admit asks plugins about the members that are about to be frozen. The snapshot includes what plugins add and how many replicas they
// admit. A member that is refused, or that got no Verdict, is not frozen.
func (a *actor) admit(ctx context.Context, p *plan) error {
	var failures []error
	for i := range p.members {
		m := &p.members[i]
		if m.verb != verbAdmit {
			continue
		}
		if err := a.admitMember(ctx, m); err != nil {
			failures = append(failures, a.settle(ctx, m, err))
			m.verb = verbKeep
		}
	}
	return errors.Join(failures...)
}

func (a *actor) admitMember(ctx context.Context, m *memberPlan) error {
	// Skip the plugins if the member has changed since the observation.
	if _, _, err := a.member(ctx, m.name); err != nil {
		return err
	}
	before, err := m.snapshot.Pool(a.o.Env.Namespace, m.name)
	if err != nil {
		return err
	}
	change := &admission.Change{
		Env: client.ObjectKeyFromObject(a.o.Env), Key: m.key, Pool: before.DeepCopy(), To: m.replicas,
	}
	verdict, err := a.admission.PreCreatePool(ctx, change)
	if err != nil {
		return fmt.Errorf("asking about member %s: %w", m.name, err)
	}
	if !verdict.Whole(m.replicas) && verdict.Replicas == 0 {
		a.refusals.add(change.Env, verbAdmit, m.name, question{m.key, m.replicas}, verdict)
		m.refuse(verdict)
		return nil
	}
	if err := m.snapshot.Edit(before, change.Pool); err != nil {
		return fmt.Errorf("the changes of admission plugins to member %s: %w", m.name, err)
	}
	if wanted := m.replicas; verdict.Replicas < wanted {
		m.replicas = verdict.Replicas
		m.snapshot.SetReplicas(verdict.Replicas)
		m.snapshot.Annotations[v1alpha1.PartlyAdmittedAnnotationKey] = fmt.Sprintf("%d of %d: %s: %s", verdict.Replicas, wanted,
			verdict.Reason, clip.Text(verdict.Message, podtemplate.LongestMessage))
		a.logAndRecord(ctx, m.name, corev1.EventTypeWarning, v1alpha1.ConditionReason(verdict.Reason), verbAdmit,
			"member %s gets %d of %d replicas: %s", m.name, verdict.Replicas, wanted, verdict.Message)
	}
	return nil
}

// partlyAdmitted returns the message for a member that was admitted in part and has not grown since, else "". It returns "" for an
// autoscaled member, because the autoscaler asks for its replicas and reports them.
func partlyAdmitted(o *observation, member *v1alpha1.EnvClusterMember) string {
	note := member.Metadata.Annotations[v1alpha1.PartlyAdmittedAnnotationKey]
	if admitted, rest, ok := strings.Cut(note, " of "); ok && !o.autoscaled(member.Config.ScalingGroup) &&
		admitted == strconv.Itoa(int(member.Spec.Replicas)) {
		wanted, why, _ := strings.Cut(rest, ": ")
		return fmt.Sprintf("%s of %s replicas were admitted: %s; apply replicas again to have more", admitted, wanted,
			clip.Text(why, podtemplate.LongestMessage))
	}
	return ""
}

// mayDelete asks plugins whether an orphan may be deleted. It returns errRefused if not, or if it is too early to ask again.
func (a *actor) mayDelete(ctx context.Context, pool *v1alpha1.SandboxPool) error {
	env, asked := client.ObjectKeyFromObject(a.o.Env), question{key: string(pool.UID)}
	if a.refusals.waiting(env)[askedAbout{verbDelete, pool.Name}].question == asked {
		return errRefused
	}
	verdict, err := a.admission.PreDeletePool(ctx, &admission.Change{Env: env, Key: asked.key, Pool: pool, From: pool.Spec.Replicas})
	if err != nil {
		return fmt.Errorf("asking about the deletion of pool %s: %w", pool.Name, err)
	}
	if verdict.Whole(0) {
		return nil
	}
	if a.refusals.add(env, verbDelete, pool.Name, asked, verdict) {
		a.record(pool.Name, corev1.EventTypeWarning, v1alpha1.ConditionReason(verdict.Reason), verbDelete,
			fmt.Sprintf("pool %s, which no member names any more, is not deleted yet: %s", pool.Name, verdict.Message))
	}
	return errRefused
}

// refuse turns a member's plan into a refusal. The member is Saturated if there is no room, which may pass, and Missing if it can never be
// admitted as it is.
func (m *memberPlan) refuse(v admission.Verdict) {
	m.verb, m.reason, m.state = verbRefuse, v1alpha1.ConditionReason(v.Reason), v1alpha1.ObservedMemberStateMissing
	if v.Reason == admission.QuotaExceeded || v.Reason == admission.InsufficientResources {
		m.state = v1alpha1.ObservedMemberStateSaturated
	}
	m.message = "its pool is not created yet: " + v.Message
}

// refusals remembers what plugins have refused, so that they are not asked again at every reconcile. Memory is bounded by the members
// and pools of Envs (I10).
type refusals struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	envs map[types.NamespacedName]map[askedAbout]refusal
}

type askedAbout struct {
	verb verb
	name string
}

// question is what a plugin was asked. A different question need not wait.
type question struct {
	key      string
	replicas int32
}

type refusal struct {
	question
	verdict admission.Verdict
	wait    time.Duration
	since   time.Time
}

func newRefusals(clk clock.PassiveClock) *refusals {
	return &refusals{clock: clk, envs: map[types.NamespacedName]map[askedAbout]refusal{}}
}

// add records a refusal, and reports whether it is new.
func (a *refusals) add(env types.NamespacedName, v verb, name string, q question, verdict admission.Verdict) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.envs[env] == nil {
		a.envs[env] = map[askedAbout]refusal{}
	}
	about := askedAbout{v, name}
	before, known := a.envs[env][about]
	wait := askAgain
	if verdict.RetryAfter > 0 {
		wait = min(max(verdict.RetryAfter, askAgainMin), askAgainMax)
	}
	wait += time.Duration(rand.Float64() * askAgainSpread * float64(wait))
	a.envs[env][about] = refusal{question: q, verdict: verdict, wait: wait, since: a.clock.Now()}
	return !known || before.question != q || before.verdict.Reason != verdict.Reason
}

// waiting returns the refusals of an Env that still hold. The wait of each is the time that remains.
func (a *refusals) waiting(env types.NamespacedName) map[askedAbout]refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out map[askedAbout]refusal
	for about, h := range a.envs[env] {
		if h.wait -= a.clock.Since(h.since); h.wait > 0 {
			if out == nil {
				out = map[askedAbout]refusal{}
			}
			out[about] = h
		}
	}
	return out
}

// prune drops the refusals that a plan no longer has: of members that are created or removed, and of orphans that are deleted.
func (a *refusals) prune(env types.NamespacedName, p *plan) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.envs[env]) == 0 {
		return
	}
	stands := map[askedAbout]bool{}
	if p != nil {
		for i := range p.members {
			stands[askedAbout{verbAdmit, p.members[i].name}] = p.members[i].verb == verbRefuse
		}
		for _, name := range p.orphans {
			stands[askedAbout{verbDelete, name}] = true
		}
	}
	for about := range a.envs[env] {
		if !stands[about] {
			delete(a.envs[env], about)
		}
	}
	if len(a.envs[env]) == 0 {
		delete(a.envs, env)
	}
}
