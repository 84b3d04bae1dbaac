// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
)

// States that look wrong and are correct.
func TestNothingIsFoundWhere(t *testing.T) {
	for name, change := range map[string]func(*Snapshot){
		"a dying Pod has no owner": func(s *Snapshot) {
			twin := pod("east", "c", "stopping", "1-east", "k1")
			twin.DeletionTimestamp = &metav1.Time{Time: now}
			s.Clusters[0].Pods = append(s.Clusters[0].Pods, twin)
		},
		"a key of a worker's local API is not the hub's": func(s *Snapshot) {
			s.Clusters[0].Pods[0].Labels[v1alpha1.ClaimKeyHashLabelKey] = "0123"
			delete(s.Hub.Claims, keyHash("k1"))
		},
		"an eviction takes a sandbox": func(s *Snapshot) {
			p := &s.Clusters[0].Pods[0]
			p.DeletionTimestamp = &metav1.Time{Time: now}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
			expectCounts(s, 1, 0)
			s.Hub.Sandboxes = s.Hub.Sandboxes[1:]
		},
		"a team that the template sets": func(s *Snapshot) {
			s.Clusters[0].Pools[0].Spec.Template.Labels = map[string]string{v1alpha1.LabelTeam: "red"}
			s.Clusters[0].Pods[1].Labels[v1alpha1.LabelTeam] = "red"
		},
		"segments that were collapsed to fit": func(s *Snapshot) {
			s.Clusters[0].Envs[0].Status.Clusters[1].ObservedMembers[0].Name = "total:default"
		},
		"an Env without members in a cluster": func(s *Snapshot) {
			for i := range s.Clusters {
				e := &s.Clusters[i].Envs[0]
				e.Spec.Clusters = nil
				for j := range e.Status.Clusters {
					e.Status.Clusters[j].ObservedMembers = nil
				}
				if i == 0 {
					e.Status.Clusters = e.Status.Clusters[:1]
				}
			}
			s.Hub.Envs[0].Clusters[0].Members = nil
			s.Hub.Envs[0].Clusters = s.Hub.Envs[0].Clusters[:1]
		},
		"a cluster that is cut off, its view as of then": func(s *Snapshot) {
			s.Hub.Clusters[1].State, s.Clusters[1].Lease = sandboxv1.ClusterState_UNREACHABLE, s.Clusters[0].Lease
			s.Hub.Clusters = s.Hub.Clusters[:2]
			s.Hub.Silent = []string{"west"}
			s.Hub.Sandboxes = s.Hub.Sandboxes[:1]
			s.Clusters[0].Envs[0].Status.Clusters[1].ObservedMembers[0].IdleCount = 9
			s.Clusters = s.Clusters[:1]
		},
		"the hub is gone, and views are as it left them": func(s *Snapshot) {
			s.Hub, s.Blind = nil, []Blind{{What: hubName, Why: "connection refused"}}
			s.Clusters[0].Envs[0].Status.Clusters[1].ObservedMembers[0].IdleCount = 9
		},
		"a lease without managed fields": func(s *Snapshot) { s.Clusters[0].Lease.Age = nil },
		"a cluster that was forgotten, and serves its own": func(s *Snapshot) {
			s.Hub.Clusters, s.Hub.Sandboxes = s.Hub.Clusters[:1], s.Hub.Sandboxes[:1]
			s.Hub.Envs[0].Clusters = s.Hub.Envs[0].Clusters[:1]
			s.Clusters[0].Envs[0].Status.Clusters = s.Clusters[0].Envs[0].Status.Clusters[:1]
			s.Clusters[0].Pods[0] = pod("east", "a", "running", "1-east", "k2")
			s.Hub.Claims[keyHash("k2")] = &sandboxv1.Claim{ClusterId: "east"} // and taken again
		},
		"a cluster that drains": func(s *Snapshot) { s.Hub.Clusters[0].State = sandboxv1.ClusterState_DRAINING },
		"a sandbox that stops while it is listed": func(s *Snapshot) {
			s.Hub.Sandboxes = append(s.Hub.Sandboxes, &sandboxv1.Sandbox{Id: "9-east", ClusterId: "east", Phase: sandboxv1.Phase_STOPPING})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			change(s)
			want(t, Check(s), "")
		})
	}
}

func TestWhatTwoLooksShow(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(before, after *Snapshot)
		want   string
	}{
		"I1 a sandbox that moved": {func(_, after *Snapshot) {
			after.Clusters[0].Pods[0].UID = types.UID("another")
		}, "I1: pod default/a in east: carries sandbox 1-east, which was on pod default/a"},
		"I2 a sandbox that is lost": {func(_, after *Snapshot) {
			after.Clusters[0].Pods = after.Clusters[0].Pods[1:]
			after.Hub.Ended = map[string]*sandboxv1.Sandbox{"1-east": nil}
		}, "I2: sandbox 1-east in east: was on pod default/a and is gone without a record"},
		"I2 a sandbox that ended": {func(_, after *Snapshot) {
			after.Clusters[0].Pods = after.Clusters[0].Pods[1:]
			after.Hub.Ended = map[string]*sandboxv1.Sandbox{"1-east": {Id: "1-east", Phase: sandboxv1.Phase_ENDED}}
		}, ""},
		"I2 not known": {func(_, after *Snapshot) { after.Clusters[0].Pods = after.Clusters[0].Pods[1:] }, ""},
		"I5 an incarnation that went back": {func(before, after *Snapshot) {
			before.Clusters[0].Incarnation, before.Hub.Clusters[0].Incarnation = 7, 7
		}, "I5: cluster east in east: the hub went from its incarnation 7 back to 3\n" +
			"I5: configmap atoll-worker-state in east: the incarnation went from 7 back to 3"},
		"I12 a name that changed hands": {func(_, after *Snapshot) { after.Hub.Clusters[0].Uid = "uid-x" },
			"I12: cluster east in east: its name went from uid uid-east to uid-x"},
		"I13 a tenant's container": {func(_, after *Snapshot) {
			kept := pod("east", "a", "idle", "", "")
			after.Clusters[0].Pods[0] = kept
			after.Hub.Ended = map[string]*sandboxv1.Sandbox{"1-east": {Phase: sandboxv1.Phase_ENDED}}
		}, "I13: pod default/a in east: is idle with container containerd://a, which a tenant had"},
		"I13 a tenant's container, seen while it stops": {func(before, after *Snapshot) {
			stopping := pod("east", "b", "stopping", "6-east", "")
			stopping.Annotations[v1alpha1.SandboxContainerIDAnnotationKey] = "containerd://b"
			before.Clusters[0].Pods[1] = stopping
		}, "I13: pod default/b in east: is idle with container containerd://b, which a tenant had"},
		"I13 reset": {func(before, _ *Snapshot) {
			stopping := pod("east", "b", "stopping", "6-east", "")
			stopping.Annotations[v1alpha1.SandboxContainerIDAnnotationKey] = "containerd://of-the-tenant"
			before.Clusters[0].Pods[1] = stopping
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := healthy(), healthy()
			tc.change(before, after)
			want(t, Compare(before, after), tc.want)
		})
	}
}

func TestNotes(t *testing.T) {
	s := healthy()
	s.Clusters[0].Clock.Offset = 10*time.Minute + 300*time.Millisecond
	s.Hub.Clock = Clock{Now: now, Offset: -time.Hour}
	s.Hub.Clusters = append(s.Hub.Clusters, &sandboxv1.Cluster{Id: "north", State: sandboxv1.ClusterState_UNREACHABLE,
		Message: "nothing heard for 50s"})
	s.Programs = nil
	want := []string{
		"the clock of east is 10m0s ahead of this machine's; no decision may depend on it (I11)",
		"the clock of the hub is 1h0m0s behind this machine's; no decision may depend on it (I11)",
		"cluster north is registered and was not looked at; what others say of it is not checked",
		"cluster north is UNREACHABLE (nothing heard for 50s); what is known of it is not compared",
		"no metrics were read: I10 is not checked",
	}
	if diff := cmp.Diff(want, Notes(s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Some findings count however short they last; transient ones count only if they last.
func TestAccumulator(t *testing.T) {
	at := func(seconds int) time.Time { return born.Add(time.Duration(seconds) * time.Second) }
	behind := func(idle int32) *Snapshot {
		s := healthy()
		s.Hub.Envs[0].Clusters[0].Members[0].Idle = idle
		return s
	}
	dirty := healthy()
	dirty.Clusters[0].Pods[1].Annotations[v1alpha1.ClaimKeyAnnotationKey] = "mine"

	var a accumulator
	for i, s := range []*Snapshot{behind(5), dirty, behind(6), behind(7), behind(7)} {
		a.take(s, at(4*i))
	}
	want(t, a.result(at(20), lasting).Findings, "I13: pod default/b in east: is idle and carries agentbox.navix.sh/claim-key")
	a.take(behind(7), at(24))
	want(t, a.result(at(24), lasting).Findings, "I4: env default/py in east: the hub shows [py-east:Active idle=7 running=1 desired=2]\n"+
		"I13: pod default/b in east: is idle and carries agentbox.navix.sh/claim-key")
	if clean := (&accumulator{}).take(healthy(), at(0)); !clean {
		t.Error("a healthy look is not clean")
	}
}

// A cluster that stays unheard is found, although the text has a longer time at each look; so is a growing metric.
func TestAMeasureThatMovesIsOneFinding(t *testing.T) {
	var a accumulator
	for i := range 6 {
		s := healthy()
		s.Hub.Clusters[0].State, s.Hub.Clusters[0].Message = sandboxv1.ClusterState_SUSPECT, fmt.Sprintf("nothing heard for %ds", 20+2*i)
		s.Programs = append(s.Programs, Program{Name: "hub", Values: map[string]float64{"atoll_hub_envs": float64(100 + i)}})
		a.take(s, born.Add(2*time.Duration(i)*time.Second))
	}
	want(t, a.result(born.Add(lasting), lasting).Findings,
		"I7: cluster east in east: is SUSPECT at the hub (nothing heard for 30s), though its worker leads\n"+
			"I10: metric atoll_hub_envs in hub: is 105")
}
