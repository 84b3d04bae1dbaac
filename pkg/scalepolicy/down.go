// SPDX-License-Identifier: Apache-2.0

package scalepolicy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"navix.sh/atoll/pkg/plural"
)

// maxBatch is the maximum number of Pods that are marked at once.
const maxBatch = 250

// shrink acts on existing marks, and makes new ones if the batch has none left.
func (d *deciding) shrink() {
	under := false
	for _, m := range slices.SortedFunc(slices.Values(d.members), func(a, b *member) int {
		return cmp.Or(cmp.Compare(b.ScaleDownPriority, a.ScaleDownPriority), cmp.Compare(a.Name, b.Name))
	}) {
		if len(m.marked) == 0 || m.Contested {
			continue // marks that are not acted on must not delay other members
		}
		under = true
		if !m.alone() {
			d.follow(m)
		}
	}
	d.mark(under)
}

// follow lowers replicas by the number of marked Pods whose window has passed, or removes marks that are no longer valid.
func (d *deciding) follow(m *member) {
	if m.triggered || m.out.Direction == Up && m.out.To > m.Pods.Live() {
		m.out.Unmark = m.marked
		m.stop(ReasonDemand, "its marks are taken back, since it is to grow")
		return
	}
	if m.out.Direction == Up {
		return
	}
	// Do not count Pods again that are being deleted because replicas were lowered before.
	due := int32(len(m.marked)) - max(0, m.Pods.Live()-m.out.To)
	if due <= 0 {
		return
	}
	policy := &d.Policy.ScaleDownPolicy
	// Remove marks that this policy would not make.
	unripe := func(pod IdlePod) bool { return pod.IdleFor < seconds(policy.IdleTimeoutSeconds) }
	marked := slices.SortedFunc(slices.Values(m.marked), func(a, b IdlePod) int {
		return cmp.Or(first(unripe(b), unripe(a)), leastMissed(a, b))
	})
	ripe := slices.IndexFunc(marked, unripe)
	if ripe >= 0 {
		back := marked[max(ripe, len(marked)-int(due)):]
		m.out.Unmark = back
		due -= int32(len(back))
		marked = marked[:len(marked)-len(back)]
	}
	var wait time.Duration
	for _, pod := range marked {
		wait = max(wait, seconds(policy.ProtectionWindowSeconds)-pod.MarkedFor)
	}
	if due > 0 && wait > 0 {
		m.stop(ReasonProtectionWindow, "%s marked and can be claimed for %d s", plural.Form(due, "Pod is", "Pods are"),
			policy.ProtectionWindowSeconds)
		d.wake(wait)
		return
	}
	// A lagging cache may show marks from before the last shrink. They must not shrink the member again immediately.
	if wait := left(m.out.Status.LastScaleDownTime, policy.StabilizationSeconds, d.Now); due > 0 && wait > 0 {
		m.out.Unmark = append(m.out.Unmark, marked...)
		m.stop(ReasonStabilizing, "%s kept: it last shrank %s ago, and stabilizationSeconds is %d",
			plural.Form(due, "marked Pod is", "marked Pods are"), d.since(m.out.Status.LastScaleDownTime), policy.StabilizationSeconds)
		d.wake(wait)
		return
	}
	going := int32(len(m.marked)) - int32(len(m.out.Unmark)) - due
	by := max(0, min(due, d.spare(m), d.groupSpare(), d.beyondBuffer(m, marked)-going))
	if by < due {
		m.out.Unmark = append(m.out.Unmark, marked[int32(len(marked))-(due-by):]...)
		m.stop(ReasonMemberFloor, "%s kept: a floor is reached, or creates are recent", plural.Form(due-by, "marked Pod is", "marked Pods are"))
	}
	if by == 0 {
		return
	}
	m.out.Direction, m.out.To = Down, m.out.To-by
	m.out.Reason, m.out.Text = ReasonWindowOver, plural.Form(by, "idle Pod was", "idle Pods were")+" marked and not claimed"
}

// mark chooses the next batch: idle Pods of the members that shrink first.
func (d *deciding) mark(under bool) {
	type candidate struct {
		IdlePod
		of *member
	}
	var candidates []candidate
	highest, gives := int32(math.MinInt32), map[*member]int32{}
	for _, m := range d.members {
		ripe, waits := d.ripe(m, under)
		// A member that keeps all its Pods does not delay the others; a member that waits for its stabilization window does.
		gives[m] = d.beyondBuffer(m, ripe)
		if min(gives[m], d.spare(m)) > 0 {
			highest = max(highest, m.ScaleDownPriority)
		}
		if waits {
			continue
		}
		for _, pod := range ripe {
			candidates = append(candidates, candidate{pod, m})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(leastMissed(a.IdlePod, b.IdlePod), cmp.Compare(a.of.Name, b.of.Name))
	})
	group, taken, told := d.groupSpare(), map[*member]int32{}, map[*member]bool{}
	for _, c := range candidates {
		m := c.of
		var reason Reason
		var text string
		switch {
		case taken[m] >= d.spare(m):
			reason, text = ReasonMemberFloor, "its floor is reached"
		case taken[m] >= gives[m]:
			reason, text = ReasonBufferKept, "creates are recent, so that one idle Pod stays"
			d.wake(d.quietIn(m))
		case m.ScaleDownPriority < highest:
			reason, text = ReasonLaterBatch, "members with a higher scaleDownPriority shrink first"
		case group <= 0:
			_, whose := d.floor()
			reason, text = ReasonGroupFloor, whose+" is reached"
		case len(m.out.Mark) >= maxBatch:
			reason, text = ReasonLaterBatch, "the batch is full"
		default:
			m.out.Mark = append(m.out.Mark, c.IdlePod)
			taken[m]++
			group--
			continue
		}
		if !told[m] {
			told[m] = true
			m.stop(reason, "%s", text)
		}
	}
	for _, m := range d.members {
		if n := int32(len(m.out.Mark)); n > 0 && m.out.Reason == "" {
			m.out.Reason = ReasonIdleTimeout
			m.out.Text = plural.Form(n, "Pod has", "Pods have") + " been idle for long enough"
		}
	}
}

// ripe returns the Pods that may be removed from a member because they have been idle long enough, in the order of removal. It returns none
// if the member may not shrink; waits reports that the reason is a recent shrink. It schedules a decision for Pods that are not ripe yet.
func (d *deciding) ripe(m *member, under bool) (ripe []IdlePod, waits bool) {
	if m.alone() || m.triggered || m.out.Direction == Up || m.Queue > 0 || len(m.IdlePods) == 0 {
		return nil, false
	}
	policy := &d.Policy.ScaleDownPolicy
	timeout := seconds(policy.IdleTimeoutSeconds)
	var next time.Duration
	for _, pod := range m.IdlePods {
		switch wait := timeout - pod.IdleFor; {
		case pod.Marked:
		case wait <= 0:
			ripe = append(ripe, pod)
		case next == 0 || wait < next:
			next = wait
		}
	}
	if next > 0 && d.spare(m) > 0 {
		d.wake(next)
	}
	switch wait := left(m.out.Status.LastScaleDownTime, policy.StabilizationSeconds, d.Now); {
	case len(ripe) == 0:
		if next > 0 {
			m.stop(ReasonNotIdleEnough, "no idle Pod has been so for idleTimeoutSeconds, which is %d", policy.IdleTimeoutSeconds)
		}
		return nil, false
	case under:
		m.stop(ReasonLaterBatch, "marked Pods go first")
		return nil, false
	case wait > 0:
		m.stop(ReasonStabilizing, "it last shrank %s ago, and stabilizationSeconds is %d",
			d.since(m.out.Status.LastScaleDownTime), policy.StabilizationSeconds)
		d.wake(wait)
		waits = true
	}
	slices.SortFunc(ripe, leastMissed)
	return ripe, waits
}

// spare returns the number of Pods that a member may lose.
func (d *deciding) spare(m *member) int32 {
	return m.out.To - max(value(m.MinReplicas), m.Pods.busy())
}

// groupSpare returns the number of Pods that the group may lose.
func (d *deciding) groupSpare() int32 {
	floor, _ := d.floor()
	return d.sum() - floor
}

// buffer returns the number of idle Pods that growth ahead of demand would create again.
func (d *deciding) buffer(m *member) int32 {
	if d.Policy.ScaleUpPolicy.IdleThresholdSeconds > 0 && d.recent(m) {
		return 1
	}
	return 0
}

// beyondBuffer returns how many of a member's idle Pods, in the order of removal, may be removed without reducing the buffer. The buffer
// consists of ready Pods if there are any.
func (d *deciding) beyondBuffer(m *member, pods []IdlePod) int32 {
	if d.buffer(m) == 0 {
		return int32(len(pods))
	}
	ready := 0
	for _, pod := range m.IdlePods {
		if pod.Ready {
			ready++
		}
	}
	if ready == 0 {
		return int32(min(len(pods), len(m.IdlePods)-1))
	}
	for i, pod := range pods {
		if pod.Ready {
			if ready--; ready == 0 {
				return int32(i)
			}
		}
	}
	return int32(len(pods))
}

// leastMissed orders Pods by how little they can serve: Pods that are not ready first, then the longest idle. The pool's reconciler also
// removes Pods that are not ready first.
func leastMissed(a, b IdlePod) int {
	return cmp.Or(first(!a.Ready, !b.Ready), cmp.Compare(b.IdleFor, a.IdleFor), cmp.Compare(a.Name, b.Name))
}

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }
