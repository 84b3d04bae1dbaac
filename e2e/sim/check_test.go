// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/hubtest"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/worker/workertest"
)

// ready waits until every cluster has a leader that the hub trusts.
func (w *world) ready(within time.Duration) bool {
	return w.eventually("a healthy federation", within, func() error {
		hubs := w.hubs()
		if len(hubs) < max(1, len(w.replicas)) {
			return errDown
		}
		for _, s := range w.members() {
			leader := s.leader()
			if leader == nil || !leader.Connected() {
				return fmt.Errorf("cluster %s has no leader at the hub", s.ID)
			}
			for _, hub := range hubs {
				if c := hub.Fleet.Cluster(s.ID); c.GetState() != sandboxv1.ClusterState_FRESH {
					return fmt.Errorf("cluster %s is %s: %s", s.ID, c.GetState(), c.GetMessage())
				}
			}
		}
		return nil
	})
}

// fact is the real history of a sandbox.
type fact struct {
	workertest.Sandbox
	host string // of the cluster where it was
}

// truth returns the real history, by sandbox id.
func (w *world) truth() map[string]fact {
	all := map[string]fact{}
	for _, s := range w.sites {
		for _, one := range s.Sandboxes() {
			if _, known := all[one.ID]; known && s.out {
				continue // the clone's copy of it
			}
			one.Forgotten = one.Forgotten || s.out // it went with its cluster
			all[one.ID] = fact{one, s.host}
		}
	}
	return all
}

// check compares the callers' responses with the real history. It follows settle and serves.
func (w *world) check() {
	allowed := w.allowed
	w.problems = append(w.problems, w.history.twice...)
	w.problems = append(w.problems, w.history.linearizable()...)
	truth := w.truth()
	w.checkPods(truth)
	w.checkGiven(truth, allowed)
	w.checkUsed(allowed)
	w.checkUngiven(truth, allowed)
	w.checkEnds()
	w.eventually("every sandbox that has ended has a record", time.Minute, w.recorded)
	w.eventually("I4: every view equals the owners' segments", 90*time.Second, w.viewsEqual)
	w.eventually("I10: nothing is left of what is over", time.Minute, w.idle)
}

// allowance is what a fault excuses.
type allowance struct {
	// orphans: claims without a key whose response died with a process leave sandboxes that no caller was given.
	orphans bool
	// endings: sandboxes may end without a request.
	endings bool
	// losses: a cluster may lack its sandboxes for a while, because it is another one.
	losses bool
}

// checkPods: no Pod is given to a second claim while the first has it (I1), until its container is gone; nor a container ever (I13).
func (w *world) checkPods(truth map[string]fact) {
	byPod := map[string][]held{}
	containers := map[string]string{}
	for id, g := range w.history.given {
		pod, container := truth[id].host+"/"+g.pod, truth[id].host+"/"+truth[id].Container
		byPod[pod] = append(byPod[pod], g)
		if other, taken := containers[container]; taken {
			w.problem("I1: container %s was given as %s and as %s", container, w.life(truth, other), w.life(truth, id))
		}
		containers[container] = id
	}
	for pod, all := range byPod {
		slices.SortFunc(all, func(a, b held) int { return truth[a.id].Claimed.Compare(truth[b.id].Claimed) })
		for i := 1; i < len(all); i++ {
			before, after := truth[all[i-1].id], truth[all[i].id]
			if before.Ended.IsZero() || after.Claimed.Before(before.Ended) {
				w.problem("I1: Pod %s was given as %s and as %s", pod, before.ID, after.ID)
			}
		}
	}
}

// beginning is the start of a simulation's clock (package testing/synctest).
var beginning = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// life describes when a sandbox was on its Pod, since the beginning.
func (w *world) life(truth map[string]fact, id string) string {
	s := truth[id]
	ended := "lives"
	if !s.Ended.IsZero() {
		ended = fmt.Sprintf("ended %s (%s)", s.Ended.Sub(beginning), s.Reason)
	}
	return fmt.Sprintf("%s [key %.8s, claimed %s, %s, forgotten %t]", id, s.KeyHash, s.Claimed.Sub(beginning), ended, s.Forgotten)
}

// recorded checks that the hub returns the record of every sandbox that ended, unless etcd forgot it or its worker's disk was replaced.
func (w *world) recorded() error {
	if w.allowed.losses {
		return nil
	}
	alone := map[string]bool{}
	for _, s := range w.sites {
		alone[s.host] = s.places == 1
	}
	for id, s := range w.truth() {
		if s.Ended.IsZero() || s.Forgotten || !alone[s.host] {
			continue
		}
		var got *sandboxv1.Sandbox
		err, _ := w.ask(func(h *hubtest.Hub) (err error) {
			got, err = h.Sandboxes.Get(context.Background(), id)
			return err
		})
		if err != nil || got.GetPhase() != sandboxv1.Phase_ENDED || got.GetTerminatedAt() == nil {
			return fmt.Errorf("%s, which ended as %s: %v, %w", id, s.Reason, got, err)
		}
	}
	return nil
}

// checkGiven: a sandbox that a caller was given exists until a caller asks to end it (I2, I6).
func (w *world) checkGiven(truth map[string]fact, allowed allowance) {
	byKey := map[string][]string{}
	for id, g := range w.history.given {
		if g.key != "" {
			byKey[g.key] = append(byKey[g.key], id)
		}
		s, known := truth[id]
		if !known {
			w.problem("sandbox %s was given and never was", id)
			continue
		}
		_, asked := w.history.givenUp[id]
		_, cancelled := w.history.cancelled[g.key]
		if !s.Ended.IsZero() && !s.Forgotten && !asked && (!cancelled || g.key == "") && !allowed.endings {
			w.problem("I6: sandbox %s of key %q ended by itself: %s%s", id, g.key, s.Reason, w.history.tell(g.key))
		}
	}
	for key, ids := range byKey {
		if len(ids) > 1 {
			w.problem("I2: key %s was answered with %s%s", key, strings.Join(ids, " and "), w.history.tell(key))
		}
	}
}

// checkUngiven: a sandbox that no caller was given has ended.
func (w *world) checkUngiven(truth map[string]fact, allowed allowance) {
	gone := func() error {
		for _, id := range slices.Sorted(maps.Keys(truth)) {
			s := w.truth()[id]
			if _, given := w.history.given[id]; given || !s.Ended.IsZero() || s.Forgotten || s.KeyHash == "" && allowed.orphans {
				continue
			}
			return fmt.Errorf("sandbox %s (key %q, attempt %d) lives and no caller was given it%s", id, s.KeyHash, s.Attempt,
				w.history.tell(w.history.keyOf(s.KeyHash)))
		}
		return nil
	}
	w.eventually("I2: a Pod that no caller was given ends", time.Minute, gone)
}

// viewsEqual compares the hub's and every cluster's view of each cluster with that cluster's own, and that with its contents.
func (w *world) viewsEqual() error {
	own := map[string]map[segment.Key]string{}
	for _, s := range w.members() {
		leader := s.leader()
		if leader == nil {
			return fmt.Errorf("cluster %s has no leader", s.ID)
		}
		segments, err := leader.Segments(context.Background())
		if err != nil {
			return err
		}
		own[s.ID] = map[segment.Key]string{}
		for _, one := range segments {
			own[s.ID][one.Key()] = describe(one.Members())
			if got, want := one.Totals().ReadyIdle, s.ReadyIdle(one.Key().Name); got != want {
				return fmt.Errorf("cluster %s says it has %d idle Pods of %s, and has %d", s.ID, got, one.Key(), want)
			}
		}
	}
	for _, hub := range w.hubs() {
		if err := hubEquals(hub, own); err != nil {
			return err
		}
	}
	for _, s := range w.members() {
		if err := foreignEquals(s, own); err != nil {
			return err
		}
	}
	return nil
}

func hubEquals(hub *hubtest.Hub, own map[string]map[segment.Key]string) error {
	seen := map[string]map[segment.Key]string{}
	for id := range own {
		seen[id] = map[segment.Key]string{}
	}
	for _, key := range hub.Fleet.Keys("") {
		for _, c := range hub.Fleet.Env(key).GetClusters() {
			members := make([]segment.Member, 0, len(c.GetMembers()))
			for _, m := range c.GetMembers() {
				members = append(members, segment.Member{
					Name: m.GetName(), ReadyIdle: m.GetReadyIdle(), Idle: m.GetIdle(), Running: m.GetRunning(), Desired: m.GetDesired(),
				})
			}
			if seen[c.GetClusterId()] == nil {
				return fmt.Errorf("the hub has Env %s of cluster %s, which is out", key.Name, c.GetClusterId())
			}
			if len(members) > 0 {
				seen[c.GetClusterId()][key] = describe(members)
			}
		}
	}
	for id := range own {
		if !maps.Equal(own[id], seen[id]) {
			return fmt.Errorf("the hub has of cluster %s %v, it has %v", id, seen[id], own[id])
		}
	}
	return nil
}

// foreignEquals checks the Envs that the cluster has itself; because it is not sent others.
func foreignEquals(s *site, own map[string]map[segment.Key]string) error {
	leader := s.leader()
	if leader == nil {
		return errors.New("no leader")
	}
	for k := range own[s.ID] {
		told := leader.Foreign(k)
		for id := range own {
			if id == s.ID {
				continue
			}
			want, has := own[id][k]
			got, was := told[id]
			if has != was || has && want != describe(got) {
				return fmt.Errorf("cluster %s was told of %s in cluster %s %q, it has %q", s.ID, k, id, describe(got), want)
			}
		}
	}
	return nil
}

func describe(members []segment.Member) string {
	members = slices.SortedFunc(slices.Values(members), func(a, b segment.Member) int { return cmp.Compare(a.Name, b.Name) })
	var out []string
	for _, m := range members {
		out = append(out, fmt.Sprintf("%s:%d/%d/%d/%d", m.Name, m.ReadyIdle, m.Idle, m.Running, m.Desired))
	}
	return strings.Join(out, " ")
}

// idle: state of calls in flight is removed with them.
func (w *world) idle() error {
	for _, hub := range w.hubs() {
		if n := hub.Waiting(); n > 0 {
			return fmt.Errorf("the hub remembers %d calls", n)
		}
	}
	for _, s := range w.sites {
		if leader := s.leader(); leader != nil && leader.InFlight() > 0 {
			return fmt.Errorf("cluster %s remembers %d claims", s.ID, leader.InFlight())
		}
	}
	return nil
}
