// SPDX-License-Identifier: Apache-2.0

package scalepolicy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/plural"
)

// Decide returns the decision for a group. It does not depend on the order of the members.
func Decide(g Group) Decision {
	d := &deciding{Group: g, members: make([]*member, len(g.Members))}
	d.out.Misconfigured = Misconfigured(&g.Policy)
	for i := range g.Members {
		m := &g.Members[i]
		d.members[i] = &member{Member: m, out: MemberDecision{Name: m.Name, Direction: None, From: m.Replicas, To: m.Replicas}}
		for j := range m.IdlePods {
			if m.IdlePods[j].Marked {
				d.members[i].marked = append(d.members[i].marked, m.IdlePods[j])
			}
		}
	}
	if d.decidable() {
		d.observe()
		preferred := slices.SortedFunc(slices.Values(d.members), func(a, b *member) int {
			return cmp.Or(cmp.Compare(a.ScaleUpPriority, b.ScaleUpPriority), cmp.Compare(a.Name, b.Name))
		})
		d.floors(preferred)
		for i, m := range preferred {
			d.grow(m, preferred[:i])
		}
		d.shrink()
	}
	for _, m := range d.members {
		d.out.Members = append(d.out.Members, m.finish())
	}
	return d.out
}

// Misconfigured describes why a policy cannot be followed, or returns "" if it can. The CRD schema rejects new objects with such a policy.
func Misconfigured(p *v1alpha1.EnvAutoscalingGroup) string {
	switch {
	case !p.Enabled:
		return ""
	case p.ScaleUpPolicy.Mode == v1alpha1.PoolScaleUpModeAggressive && p.MaxReplicas == nil:
		return fmt.Sprintf("group %s: mode Aggressive needs maxReplicas, or it would double without end", p.Name)
	case p.MaxReplicas != nil && value(p.MinReplicas) > *p.MaxReplicas:
		return fmt.Sprintf("group %s: minReplicas %d is above maxReplicas %d", p.Name, *p.MinReplicas, *p.MaxReplicas)
	}
	switch p.ScaleUpPolicy.Mode {
	case v1alpha1.PoolScaleUpModeConservative, v1alpha1.PoolScaleUpModeDefault, v1alpha1.PoolScaleUpModeAggressive, "":
		return ""
	}
	return fmt.Sprintf("group %s: mode %q is not known; want Conservative, Default or Aggressive", p.Name, p.ScaleUpPolicy.Mode)
}

// deciding is the state of one decision.
type deciding struct {
	Group
	members []*member
	out     Decision
}

// member is one member and its decision so far.
type member struct {
	*Member
	marked    []IdlePod
	saturated time.Time
	triggered bool
	waiting   bool // until idleThresholdSeconds have passed; the member then triggers
	out       MemberDecision
}

// alone reports whether the member must not be changed. It still counts towards the group's limits.
func (m *member) alone() bool { return m.Contested || m.Unsettled }

// held returns the number of Pods that count towards the group's limits.
func (m *member) held() int32 { return max(m.out.To, m.Pods.Live()) }

// unmet returns the number of waiting claims for which no Pod is idle or starting.
func (m *member) unmet() int32 { return m.Queue - m.Pods.ReadyIdle - m.Provisioning }

func (m *member) stop(reason Reason, format string, args ...any) {
	m.out.Stops = append(m.out.Stops, Stop{Reason: reason, Text: fmt.Sprintf(format, args...)})
}

// finish sets the reason of a decision that changes nothing: the first gate that stopped a change.
func (m *member) finish() MemberDecision {
	if m.out.Reason == "" && len(m.out.Stops) > 0 {
		m.out.Reason, m.out.Text = m.out.Stops[0].Reason, m.out.Stops[0].Text
	}
	return m.out
}

// decidable is the first gate.
func (d *deciding) decidable() bool {
	for _, m := range d.members {
		switch {
		case !d.Policy.Enabled:
			m.stop(ReasonDisabled, "group %s is not enabled", d.Policy.Name)
		case d.out.Misconfigured != "":
			m.stop(ReasonMisconfigured, "%s", d.out.Misconfigured)
			m.out.Status = d.statusOf(m)
		}
	}
	return d.Policy.Enabled && d.out.Misconfigured == ""
}

// observe updates the status from the Pods, and finds the members that can grow.
func (d *deciding) observe() {
	for _, m := range d.members {
		m.out.Status = d.statusOf(m)
		m.saturated = SaturatedUntil(m.out.Status, &d.Policy.ScaleUpPolicy, d.Now)
		m.out.SaturatedUntil = m.saturated
		d.wake(m.saturated.Sub(d.Now))
	}
	for _, m := range d.members {
		m.out.CanGrow = d.full(m) == "" && m.saturated.IsZero() && !m.Contested
	}
}

func (d *deciding) statusOf(m *member) *v1alpha1.PoolAutoScalingStatus {
	s := clone(m.Status)
	s.ObservedGeneration = m.Generation
	switch {
	case m.Pods.ReadyIdle > 0:
		s.IdleZeroSince = nil
	case s.IdleZeroSince == nil:
		s.IdleZeroSince = &metav1.Time{Time: d.Now}
	}
	if r := m.Refused; r != nil {
		// Times in a status have whole seconds. With a fraction, the same refusal would appear to be new each time.
		at, message := r.At.Truncate(time.Second), short(r.Message)
		known := s.LastScaleUpAttemptResult == v1alpha1.PoolScaleUpAttemptInsufficient && s.ScaleUpErrorMessage == message
		// The pool retries as long as it lacks Pods. If no claim waits, it would be useless to write each retry.
		if (s.LastScaleUpAttemptTime == nil || at.After(s.LastScaleUpAttemptTime.Time)) && (!known || m.Queue > 0) {
			s.LastScaleUpAttemptTime = &metav1.Time{Time: at}
			s.LastScaleUpAttemptResult, s.ScaleUpErrorMessage = v1alpha1.PoolScaleUpAttemptInsufficient, message
		}
	}
	return s
}

// floors raises replicas to the number of live Pods, which the group already holds, and to the floors.
func (d *deciding) floors(preferred []*member) {
	for _, m := range preferred {
		if m.alone() {
			continue
		}
		if there := m.Pods.Live() - int32(len(m.marked)); there > m.out.To {
			m.out.Floor = there
			m.move(ReasonLivePods, there, "%d Pods are there that were not chosen for removal", there)
		}
		m.out.Floor = m.out.To
	}
	for _, m := range preferred {
		d.raise(m, value(m.MinReplicas), "its minReplicas")
	}
	floor, text := d.floor()
	for _, m := range preferred {
		if missing := floor - d.sum(); missing > 0 {
			d.raise(m, m.out.To+missing, text)
		}
	}
}

// raise raises a member to a floor, as far as ceilings, room and a recent refusal allow. Cooldowns and steps do not apply to it.
func (d *deciding) raise(m *member, to int32, whose string) {
	if m.alone() || m.out.To >= to {
		return
	}
	if !m.saturated.IsZero() {
		m.stop(ReasonSaturated, "%s", d.saturation(m))
		return
	}
	capped := d.cap(m, to)
	if capped > m.out.To {
		m.move(ReasonBelowFloor, capped, "%d is %s", to, whose)
	}
}

// grow runs all gates of one member, so that each gate that stops the member is reported. Growth starts from the floor.
func (d *deciding) grow(m *member, before []*member) {
	switch {
	case m.Contested:
		m.stop(ReasonContested, "another writer keeps setting its replicas")
		return
	case m.Unsettled:
		m.stop(ReasonUnsettled, "its pool does not have the Env's replicas yet")
		return
	}
	reason, why := d.trigger(m)
	if reason == "" {
		return
	}
	m.triggered = true
	stopped := false
	policy := &d.Policy.ScaleUpPolicy
	if wait := left(m.out.Status.LastScaleUpTime, policy.CooldownSeconds, d.Now); wait > 0 {
		m.stop(ReasonSuccessCooldown, "%s; it last grew %s ago, and cooldownSeconds is %d",
			why, d.since(m.out.Status.LastScaleUpTime), policy.CooldownSeconds)
		d.wake(wait)
		stopped = true
	}
	if !m.saturated.IsZero() {
		m.stop(ReasonSaturated, "%s; %s", why, d.saturation(m))
		stopped = true
	}
	if sibling := d.yields(before); sibling != "" && reason == ReasonIdleZero {
		m.stop(ReasonYields, "%s; member %s is preferred and has Pods, or grows", why, sibling)
		stopped = true
	}
	to := d.cap(m, step(policy.Mode, m.out.To))
	if stopped || to <= m.out.To {
		return
	}
	m.move(reason, to, "%s", why)
}

// trigger returns why a member should grow. If it should not, trigger records why and returns "".
func (d *deciding) trigger(m *member) (reason Reason, why string) {
	if unmet := m.unmet(); unmet > 0 {
		return ReasonUnmetDemand, fmt.Sprintf("claims that wait: %d, idle Pods: %d, on their way: %d", m.Queue, m.Pods.ReadyIdle, m.Provisioning)
	}
	switch policy := &d.Policy.ScaleUpPolicy; {
	case m.Pods.ReadyIdle > 0:
		m.stop(ReasonNoTrigger, "%s idle", plural.Form(m.Pods.ReadyIdle, "Pod is", "Pods are"))
	case m.Provisioning > 0:
		m.stop(ReasonNoTrigger, "%s on the way", plural.Form(m.Provisioning, "Pod is", "Pods are"))
	case policy.IdleThresholdSeconds == 0:
		m.stop(ReasonProactiveOff, "no claim waits, and idleThresholdSeconds is 0")
	case !d.recent(m):
		m.stop(ReasonQuietWindow, "no Pod is idle, and none was asked for within %d s", policy.IdleZeroQuietWindowSeconds)
	default:
		if wait := left(m.out.Status.IdleZeroSince, policy.IdleThresholdSeconds, d.Now); wait > 0 {
			m.stop(ReasonIdleThreshold, "no Pod has been idle for less than idleThresholdSeconds, which is %d", policy.IdleThresholdSeconds)
			d.wake(wait)
			m.waiting = true
			return "", ""
		}
		return ReasonIdleZero, fmt.Sprintf("no Pod has been idle for %d s, and creates are recent", policy.IdleThresholdSeconds)
	}
	return "", ""
}

// quietIn returns after what time without creates the quiet window stops growth ahead of demand. It returns 0 if there is no quiet window.
func (d *deciding) quietIn(m *member) time.Duration {
	if quiet := time.Duration(d.Policy.ScaleUpPolicy.IdleZeroQuietWindowSeconds) * time.Second; quiet > 0 {
		return quiet - d.Now.Sub(m.LastCreate) + time.Millisecond
	}
	return 0
}

// recent reports whether there was a create recently enough for the quiet window to allow growth ahead of demand.
func (d *deciding) recent(m *member) bool {
	quiet := time.Duration(d.Policy.ScaleUpPolicy.IdleZeroQuietWindowSeconds) * time.Second
	return quiet == 0 || !m.LastCreate.IsZero() && d.Now.Sub(m.LastCreate) <= quiet
}

// yields returns the sibling to which a member leaves growth ahead of demand. That sibling has idle Pods, will have Pods without another
// decision, or grows now. A sibling that has room but does not grow does not qualify: the next claim would never find a Pod.
func (d *deciding) yields(before []*member) string {
	for _, sibling := range before {
		grows := (sibling.triggered || sibling.waiting) && sibling.Stuck == 0 && d.full(sibling) == ""
		switch {
		case sibling.Contested:
		case sibling.Pods.ReadyIdle > 0:
			return sibling.Name
		case !sibling.saturated.IsZero():
		case grows || sibling.Provisioning > sibling.Stuck:
			return sibling.Name
		}
	}
	return ""
}

// step returns the replicas after one step of growth, as documented for each mode.
func step(mode v1alpha1.PoolScaleUpMode, from int32) int32 {
	by := int64(1)
	switch current := int64(from); mode {
	case v1alpha1.PoolScaleUpModeConservative:
	case v1alpha1.PoolScaleUpModeAggressive:
		by = current
	default:
		by = (current + 1) / 2
	}
	return int32(min(int64(from)+max(1, by), math.MaxInt32))
}

// cap limits growth to the ceilings, and records the ceiling that it reached.
func (d *deciding) cap(m *member, to int32) int32 {
	ceiling, text, reason := d.limits(m)
	if to <= ceiling {
		return to
	}
	m.stop(reason, "%s", text)
	return max(ceiling, m.out.To)
}

// full returns the limit that prevents any growth of a member, or "" if there is none.
func (d *deciding) full(m *member) Reason {
	most, _, reason := d.limits(m)
	if most > m.out.To {
		return ""
	}
	return reason
}

// limits returns the lowest ceiling of a member. A ceiling below the current number of Pods does not remove any.
func (d *deciding) limits(m *member) (most int32, text string, reason Reason) {
	most = math.MaxInt32
	lower := func(to int32, r Reason, format string, args ...any) {
		if to < most {
			most, reason, text = to, r, fmt.Sprintf(format, args...)
		}
	}
	if m.MaxReplicas != nil {
		lower(*m.MaxReplicas, ReasonMemberCeiling, "its maxReplicas is %d", *m.MaxReplicas)
	}
	others := int64(d.Others)
	for _, sibling := range d.members {
		if sibling != m {
			others += int64(sibling.held())
		}
	}
	share := func(limit int32) int32 {
		return int32(max(int64(limit)-others, 0))
	}
	if limit := d.Policy.MaxReplicas; limit != nil {
		lower(max(share(*limit), m.out.To), ReasonGroupCeiling, "the group's maxReplicas is %d, and it holds %d", *limit, others+int64(m.held()))
	}
	if d.Room != nil {
		lower(max(share(*d.Room), m.out.To), ReasonNoRoom, "the room granted to this cluster is %d, and the group holds %d", *d.Room,
			others+int64(m.held()))
	}
	return most, text, reason
}

func (m *member) move(reason Reason, to int32, format string, args ...any) {
	m.out.Direction, m.out.Probe = Up, to > m.out.Floor
	m.out.To = to
	if m.out.Reason == "" {
		m.out.Reason, m.out.Text = reason, fmt.Sprintf(format, args...)
	}
}

func (d *deciding) sum() int32 {
	n := int64(d.Others)
	for _, m := range d.members {
		n += int64(m.out.To)
	}
	return bounded(n)
}

func (d *deciding) saturation(m *member) string {
	text := fmt.Sprintf("the last attempt was %s, and saturationCooldownSeconds is %d",
		m.out.Status.LastScaleUpAttemptResult, d.Policy.ScaleUpPolicy.SaturationCooldownSeconds)
	if m.out.Status.ScaleUpErrorMessage != "" {
		text += ": " + m.out.Status.ScaleUpErrorMessage
	}
	return text
}

// wake requests another decision after the given time.
func (d *deciding) wake(in time.Duration) {
	if in > 0 && (d.out.Again == 0 || in < d.out.Again) {
		d.out.Again = in
	}
}

func (d *deciding) since(t *metav1.Time) time.Duration {
	return max(0, d.Now.Sub(t.Time)).Round(time.Second)
}

// left returns the remaining time of a period that began at since. A time in the future counts as now.
func left(since *metav1.Time, seconds int32, now time.Time) time.Duration {
	if since == nil {
		return 0
	}
	whole := time.Duration(seconds) * time.Second
	return max(0, whole-max(0, now.Sub(since.Time)))
}

func value(p *int32) int32 {
	if p == nil {
		return 0
	}
	return *p
}
