// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
)

var (
	born = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now  = born.Add(time.Hour)
)

func keyHash(key string) string {
	sum := sha256.Sum256([]byte("\x00default\x00" + key))
	return hex.EncodeToString(sum[:16])
}

// pod is a Pod of the pool py-<cluster>.
func pod(cluster, name, phase, id, key string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(cluster + "-" + name), CreationTimestamp: metav1.NewTime(born),
		Labels:      map[string]string{v1alpha1.SandboxPoolLabelKey: "py-" + cluster, v1alpha1.SandboxPhaseLabelKey: phase},
		Annotations: map[string]string{},
	}}
	if id != "" {
		p.Labels[v1alpha1.SandboxIDLabelKey], p.Annotations[v1alpha1.SandboxIDAnnotationKey] = id, id
		p.Annotations[v1alpha1.ClaimIncarnationAnnotationKey] = "3"
		p.Annotations[v1alpha1.SandboxClaimedAtAnnotationKey] = born.Add(time.Minute).Format(time.RFC3339)
	}
	if key != "" {
		p.Labels[v1alpha1.ClaimKeyHashLabelKey], p.Annotations[v1alpha1.ClaimKeyAnnotationKey] = keyHash(key), key
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://" + name}}
	return p
}

func segment(cluster string, idle, running int32) v1alpha1.EnvClusterStatus {
	return v1alpha1.EnvClusterStatus{ClusterID: cluster, ObservedMembers: []v1alpha1.EnvObservedMember{{
		Name: "py-" + cluster, State: v1alpha1.ObservedMemberStateActive, IdleCount: idle, RunningCount: running,
		DesiredReplicas: idle + running, CurrentReplicas: idle + running,
	}}}
}

func cluster(id string, pods []corev1.Pod, replicas int32, segments ...v1alpha1.EnvClusterStatus) Cluster {
	env := v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "py"}}
	for _, s := range segments {
		s.IsLocal = s.ClusterID == id
		env.Status.Clusters = append(env.Status.Clusters, s)
	}
	env.Spec.Clusters = []v1alpha1.EnvClusterSpec{{ClusterID: id, Members: []v1alpha1.EnvClusterMember{{Name: "py-" + id}}}}
	pool := v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "py-" + id, Labels: map[string]string{v1alpha1.LabelEnv: "py"},
	}}
	pool.Spec.Replicas = replicas
	return Cluster{
		ID: id, UID: "uid-" + id, Pods: pods, Envs: []v1alpha1.SandboxEnv{env}, Pools: []v1alpha1.SandboxPool{pool},
		Lease: &Lease{Holder: "worker", Duration: 15 * time.Second, Age: new(4 * time.Second)}, Incarnation: 3, Clock: Clock{Now: now},
	}
}

func hubCluster(id string) *sandboxv1.Cluster {
	return &sandboxv1.Cluster{Id: id, Uid: "uid-" + id, State: sandboxv1.ClusterState_FRESH, Incarnation: 3,
		LastSeen: durationpb.New(time.Second), Members: 1, Idle: 2, Running: 1}
}

func hubPart(id string, idle, running int32) *sandboxv1.EnvCluster {
	return &sandboxv1.EnvCluster{ClusterId: id, State: sandboxv1.ClusterState_FRESH, Age: durationpb.New(time.Second),
		Members: []*sandboxv1.EnvMember{{Name: "py-" + id, State: "Active", Idle: idle, Running: running, Desired: idle + running}}}
}

// healthy is a new federation of two clusters, with a sandbox in each.
func healthy() *Snapshot {
	east, west := segment("east", 1, 1), segment("west", 0, 1)
	return &Snapshot{
		Clusters: []Cluster{
			cluster("east", []corev1.Pod{pod("east", "a", "running", "1-east", "k1"), pod("east", "b", "idle", "", "")}, 2, east, west),
			cluster("west", []corev1.Pod{pod("west", "a", "running", "2-west", "k2")}, 1, segment("west", 0, 1), segment("east", 1, 1)),
		},
		Hub: &Hub{
			Clusters: []*sandboxv1.Cluster{hubCluster("east"), hubCluster("west")},
			Envs: []*sandboxv1.Env{{Namespace: "default", Name: "py", Clusters: []*sandboxv1.EnvCluster{
				hubPart("east", 1, 1), hubPart("west", 0, 1),
			}}},
			Sandboxes: []*sandboxv1.Sandbox{
				{Id: "1-east", ClusterId: "east", Pod: "a", PodUid: "east-a", Phase: sandboxv1.Phase_RUNNING},
				{Id: "2-west", ClusterId: "west", Pod: "a", PodUid: "west-a", Phase: sandboxv1.Phase_RUNNING},
			},
			Claims: map[string]*sandboxv1.Claim{
				keyHash("k1"): {ClusterId: "east", Sandbox: &sandboxv1.Sandbox{Id: "1-east"}},
				keyHash("k2"): {ClusterId: "west", Sandbox: &sandboxv1.Sandbox{Id: "2-west"}},
			},
		},
		Programs: []Program{
			{Name: "hub", Values: map[string]float64{"atoll_hub_envs": 1, "go_goroutines": 80, "go_memstats_sys_bytes": 60e6}},
			{Name: "east", Values: map[string]float64{"atoll_worker_sandboxes": 1, "go_goroutines": 200}},
		},
	}
}

func lines(found []Finding) string {
	out := make([]string, 0, len(found))
	for _, f := range found {
		out = append(out, f.String())
	}
	return strings.Join(out, "\n")
}

func TestAHealthyFederationHasNoFindings(t *testing.T) {
	s := healthy()
	if found := Check(s); len(found) != 0 {
		t.Errorf("found:\n%s", lines(found))
	}
	if found := Compare(s, healthy()); len(found) != 0 {
		t.Errorf("found between two looks:\n%s", lines(found))
	}
	if notes := Notes(s); len(notes) != 0 {
		t.Errorf("noted %q", notes)
	}
	s.Hub, s.Programs = nil, nil
	if found := Check(s); len(found) != 0 {
		t.Errorf("without a hub, found:\n%s", lines(found))
	}
	s = healthy()
	s.Clusters = nil
	if found := Check(s); len(found) != 0 {
		t.Errorf("without clusters, found:\n%s", lines(found))
	}
}

// Each invariant's check finds its breach: I1, I2, I3, I4, I5, I6, I7, I8, I10, I11, I12, I13.
func TestEachBreachIsFound(t *testing.T) {
	owned := func(manager, cluster string) metav1.ManagedFieldsEntry {
		fields := metav1.NewFieldsV1(fmt.Sprintf(`{"f:status":{"f:clusters":{"k:{\"clusterID\":\"%s\"}":{"f:observedMembers":{}}}}}`, cluster))
		return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: fields}
	}
	for name, tc := range map[string]struct {
		breach func(*Snapshot)
		want   string // of each finding, up to "; expected"
	}{
		"I9 rooms that exceed maxReplicas": {func(s *Snapshot) {
			s.Hub.Envs[0].Allotments = []*sandboxv1.Allotment{{Group: "all", MaxReplicas: 5, Shares: []*sandboxv1.AllotmentShare{
				{ClusterId: "east", Room: 3, MayHold: 3}, {ClusterId: "west", Room: 3, MayHold: 3},
			}}}
		}, "I9: env default/py in hub: the rooms of group all are 6 together"},
		"I9 more than the hub counts": {func(s *Snapshot) {
			s.Clusters[0].Envs[0].Spec.Clusters[0].Members[0].Config.ScalingGroup = "all"
			s.Hub.Envs[0].Allotments = []*sandboxv1.Allotment{{Group: "all", MaxReplicas: 5, Shares: []*sandboxv1.AllotmentShare{
				{ClusterId: "east", Room: 1, MayHold: 1},
			}}}
		}, "I9: env default/py in east: holds 2 of group all"},
		"I1 one sandbox on two Pods": {func(s *Snapshot) {
			s.Clusters[0].Pods[1] = pod("east", "b", "running", "1-east", "")
			expectCounts(s, 0, 2)
			s.Hub.Sandboxes[0].PodUid = ""
		}, "I1: pod default/b in east: sandbox 1-east is also on pod default/a in east"},
		"I1 running without a sandbox": {func(s *Snapshot) {
			s.Clusters[0].Pods[1] = pod("east", "b", "running", "", "")
			expectCounts(s, 0, 2)
		}, "I1: pod default/b in east: is running without a sandbox id"},
		"I1 a sandbox of another cluster": {func(s *Snapshot) {
			s.Clusters[0].Pods[1] = pod("east", "b", "running", "7-west", "")
			expectCounts(s, 0, 2)
			s.Hub.Sandboxes = append(s.Hub.Sandboxes, &sandboxv1.Sandbox{Id: "7-west", ClusterId: "east", Phase: sandboxv1.Phase_RUNNING})
		}, `I1: pod default/b in east: sandbox "7-west" was not minted by this cluster`},
		"I1 an id that changed": {func(s *Snapshot) {
			s.Clusters[0].Pods[0].Annotations[v1alpha1.SandboxIDAnnotationKey] = "8-east"
		}, `I1: pod default/a in east: label says sandbox "1-east", annotation "8-east"`},
		"I1 the hub has it on another Pod": {func(s *Snapshot) { s.Hub.Sandboxes[0].PodUid, s.Hub.Sandboxes[0].Pod = "east-b", "b" },
			"I1: pod default/a in east: the hub says that sandbox 1-east is on pod b"},
		"I1 an incarnation that was never persisted": {func(s *Snapshot) {
			s.Clusters[0].Pods[0].Annotations[v1alpha1.ClaimIncarnationAnnotationKey] = "4"
		}, `I1: pod default/a in east: was claimed under incarnation "4", the highest persisted is 3`},
		"I2 one key in two clusters": {func(s *Snapshot) {
			s.Clusters[1].Pods[0] = pod("west", "a", "running", "2-west", "k1")
		}, "I2: pod default/a in west: carries a claim key that the hub holds in east\n" +
			"I2: pod default/a in west: claim key " + keyHash("k1") + " is also on pod default/a in east"},
		"I2 a key of the hub used at a local API": {func(s *Snapshot) {
			twin := pod("west", "a", "running", "2-west", "k1")
			twin.Labels[v1alpha1.ClaimKeyHashLabelKey] = keyHash("k1\x00local\x00west")
			s.Clusters[1].Pods[0] = twin
		}, `I2: pod default/a in west: was claimed at the local API under claim key "k1", which the hub has on pod default/a in east`},
		"I2 a key that the hub forgot": {func(s *Snapshot) { s.Hub.Claims[keyHash("k2")] = nil },
			"I2: pod default/a in west: carries a claim key that the hub does not know"},
		"I2 a key of another sandbox": {func(s *Snapshot) { s.Hub.Claims[keyHash("k2")].Sandbox.Id = "9-west" },
			"I2: pod default/a in west: carries the claim key of sandbox 9-west"},
		"I2 a sandbox that the hub lost": {func(s *Snapshot) { s.Hub.Sandboxes = s.Hub.Sandboxes[1:] },
			"I2: pod default/a in east: sandbox 1-east is missing in the hub's list"},
		"I3 a foreign segment called local": {func(s *Snapshot) { s.Clusters[0].Envs[0].Status.Clusters[1].IsLocal = true },
			"I3: env default/py in east: segment west has isLocal=true"},
		"I3 the sync path in the local segment": {func(s *Snapshot) {
			s.Clusters[0].Envs[0].ManagedFields = []metav1.ManagedFieldsEntry{owned("atoll-sync", "east"), owned("atoll-sync", "west")}
		}, "I3: env default/py in east: atoll-sync owns fields of the local segment east"},
		"I3 the reconciler in a foreign segment": {func(s *Snapshot) {
			s.Clusters[0].Envs[0].ManagedFields = []metav1.ManagedFieldsEntry{owned("atoll-worker", "east"), owned("atoll-worker", "west")}
		}, "I3: env default/py in east: atoll-worker owns fields of the foreign segment west"},
		"I4 a stale foreign segment": {func(s *Snapshot) { s.Clusters[0].Envs[0].Status.Clusters[1].ObservedMembers[0].IdleCount = 9 },
			"I4: env default/py in east: shows west as [py-west:Active idle=9 running=1 desired=1]"},
		"I4 a missing foreign segment": {func(s *Snapshot) {
			s.Clusters[0].Envs[0].Status.Clusters = s.Clusters[0].Envs[0].Status.Clusters[:1]
		}, "I4: env default/py in east: does not show the segment of west"},
		"I4 an Env that came back": {func(s *Snapshot) { s.Clusters[1].Envs = nil },
			"I4: env default/py in east: shows a segment of west\nI4: env default/py in west: the hub shows a part of west"},
		"I4 a cluster that came back": {func(s *Snapshot) {
			s.Hub.Clusters, s.Hub.Sandboxes, s.Clusters = s.Hub.Clusters[:1], s.Hub.Sandboxes[:1], s.Clusters[:1]
		}, "I4: env default/py in east: shows a segment of west\nI4: env default/py in hub: shows a segment of west"},
		"I4 the hub's view is behind": {func(s *Snapshot) { s.Hub.Envs[0].Clusters[0].Members[0].Idle = 7 },
			"I4: env default/py in east: the hub shows [py-east:Active idle=7 running=1 desired=2]"},
		"I5 the hub lost a part": {func(s *Snapshot) { s.Hub.Envs[0].Clusters = s.Hub.Envs[0].Clusters[:1] },
			"I5: env default/py in west: the hub does not show this cluster's part"},
		"I5 a sandbox without a Pod": {func(s *Snapshot) {
			s.Hub.Sandboxes = append(s.Hub.Sandboxes, &sandboxv1.Sandbox{Id: "5-west", ClusterId: "west", Phase: sandboxv1.Phase_RUNNING})
		}, "I5: sandbox 5-west in west: the hub lists it as RUNNING, and no Pod carries it"},
		"I6 a sandbox marked for scale-down": {func(s *Snapshot) {
			s.Clusters[0].Pods[0].Annotations[v1alpha1.SandboxScaleDownProtectedAnnotationKey] = "2026-03-01T12:30:00Z"
		}, "I6: pod default/a in east: its sandbox is running, and it is marked for scale-down since 2026-03-01T12:30:00Z"},
		"I6 a sandbox deleted": {func(s *Snapshot) {
			s.Clusters[0].Pods[0].DeletionTimestamp = &metav1.Time{Time: now}
			expectCounts(s, 1, 0)
			s.Hub.Sandboxes = s.Hub.Sandboxes[1:]
		}, "I6: pod default/a in east: is being deleted while its sandbox is running"},
		"I7 a cluster that is not heard": {func(s *Snapshot) {
			s.Hub.Clusters[0].State, s.Hub.Clusters[0].Message = sandboxv1.ClusterState_UNREACHABLE, "nothing heard for 50s"
		}, "I7: cluster east in east: is UNREACHABLE at the hub (nothing heard for 50s), though its worker leads"},
		"I7 an old part of a fresh cluster": {func(s *Snapshot) { s.Hub.Envs[0].Clusters[1].Age = durationpb.New(time.Minute) },
			"I7: env default/py in west: the cluster is FRESH, its part 1m0s old"},
		"I7 a slow hub": {func(s *Snapshot) { s.Hub.Slowest = 9 * time.Second }, "I7: hub in hub: took 9s for what it has in memory"},
		"I7 called stale": {func(s *Snapshot) {
			s.Clusters[0].Envs[0].Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxEnvConditionFederated,
				Reason: string(v1alpha1.ReasonClustersStale), Message: "the hub has not heard lately from: west"}}
		}, "I7: env default/py in east: Federated says: the hub has not heard lately from: west"},
		"I7 called stale, next to a gap": {func(s *Snapshot) {
			s.Clusters[0].Envs[0].Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxEnvConditionFederated,
				Reason:  string(v1alpha1.ReasonClustersStale),
				Message: "the hub has not heard lately from: west; mars is not registered at the hub"}}
		}, "I7: env default/py in east: Federated says: the hub has not heard lately from: west; mars is not registered at the hub"},
		"I7 no list of a fresh cluster": {func(s *Snapshot) { s.Hub.Silent = []string{"west"} },
			"I7: cluster west in west: is FRESH, and did not list its sandboxes in time"},
		"I8 no leader": {func(s *Snapshot) { s.Clusters[0].Lease = nil }, "I8: lease atoll-worker in east: there is none"},
		"I8 a leader that is gone": {func(s *Snapshot) { s.Clusters[0].Lease.Age = new(time.Minute) },
			"I8: lease atoll-worker in east: worker has not renewed it for longer than its 15s"},
		"I8 a lease that was given up": {func(s *Snapshot) { s.Clusters[0].Lease.Holder = "" },
			"I8: lease atoll-worker in east: no one holds it"},
		"I8 a segment that is not true": {func(s *Snapshot) { s.Clusters[0].Pods = s.Clusters[0].Pods[:1] },
			"I8: env default/py in east: its segment says py-east idle=1 running=1 replicas=2"},
		"I8 no segment": {func(s *Snapshot) {
			s.Clusters = s.Clusters[:1]
			s.Clusters[0].Envs[0].Status.Clusters = nil
			s.Hub.Envs = nil
		}, "I8: env default/py in east: has members here and no segment of this cluster"},
		"I8 a pool that is gone": {func(s *Snapshot) { s.Clusters[1].Pools = nil },
			"I8: env default/py in west: its segment says py-west idle=0 running=1 replicas=1"},
		"I10 a queue that grows": {func(s *Snapshot) { s.Programs[1].Values["atoll_worker_hub_reports_unacknowledged"] = 17 },
			"I10: metric atoll_worker_hub_reports_unacknowledged in east: is 17"},
		"I10 goroutines": {func(s *Snapshot) { s.Programs[0].Values["go_goroutines"] = 20_000 }, "I10: metric go_goroutines in hub: is 20000"},
		"I11 a time of another clock": {func(s *Snapshot) {
			s.Clusters[0].Pods[0].Annotations[v1alpha1.SandboxClaimedAtAnnotationKey] = now.Add(10 * time.Minute).Format(time.RFC3339)
		}, "I11: pod default/a in east: agentbox.navix.sh/claimed-at is 2026-03-01T13:10:00Z"},
		"I11 fresh and silent": {func(s *Snapshot) { s.Hub.Clusters[1].LastSeen = durationpb.New(30 * time.Second) },
			"I11: cluster west in west: is FRESH, last heard 30s ago"},
		"I12 another cluster under the name": {func(s *Snapshot) { s.Hub.Clusters[1].Uid = "uid-north" },
			"I12: cluster west in west: the hub knows it by uid uid-north"},
		"I12 a clone": {func(s *Snapshot) { s.Hub.Clusters[1].Uid, s.Clusters[1].UID = "uid-east", "uid-east" },
			"I12: cluster west in west: has the kube-system uid of east"},
		"I12 two that take turns": {func(s *Snapshot) {
			s.Hub.Clusters[1].State, s.Hub.Clusters[1].Message = sandboxv1.ClusterState_QUARANTINED, "two clusters with this name take turns"
		}, "I12: cluster west in west: is quarantined: two clusters with this name take turns"},
		"I12 an incarnation from nowhere": {func(s *Snapshot) { s.Hub.Clusters[0].Incarnation = 9 },
			"I12: cluster east in east: reports under incarnation 9, the highest persisted there is 3"},
		"I13 identity on an idle Pod": {func(s *Snapshot) {
			s.Clusters[0].Pods[1].Annotations[v1alpha1.ClaimKeyAnnotationKey] = "mine"
			s.Clusters[0].Pods[1].Labels[v1alpha1.LabelTeam] = "red"
		}, "I13: pod default/b in east: is idle and carries scheduling.navix.sh/team, agentbox.navix.sh/claim-key"},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			tc.breach(s)
			want(t, Check(s), tc.want)
		})
	}
}

// A worker and its hub may hold a full queue.
func TestI10ClaimsThatWaitHaveGoroutines(t *testing.T) {
	s := healthy()
	s.Programs[0].Values["go_goroutines"] = 30_000
	s.Programs[1].Values["atoll_worker_claims_waiting"] = 8192
	s.Programs[1].Values["go_goroutines"] = 20_000
	if found := Check(s); len(found) != 0 {
		t.Errorf("a full queue: %s", lines(found))
	}
	s.Programs[1].Values["atoll_worker_claims_waiting"] = 80_000
	want(t, Check(s), "I10: metric atoll_worker_claims_waiting in east: is 80000")
}

// want compares findings, without the expected values.
func want(t *testing.T, found []Finding, text string) {
	t.Helper()
	got := make([]string, 0, len(found))
	for _, f := range found {
		short, expected, _ := strings.Cut(f.String(), "; expected ")
		if expected == "" {
			t.Errorf("%s: does not say what was expected", short)
		}
		got = append(got, short)
	}
	if diff := cmp.Diff(text, strings.Join(got, "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// expectCounts makes all views agree on east's counts.
func expectCounts(s *Snapshot, idle, running int32) {
	for i := range s.Clusters {
		for j := range s.Clusters[i].Envs[0].Status.Clusters {
			if m := &s.Clusters[i].Envs[0].Status.Clusters[j].ObservedMembers[0]; m.Name == "py-east" {
				m.IdleCount, m.RunningCount = idle, running
			}
		}
	}
	m := s.Hub.Envs[0].Clusters[0].Members[0]
	m.Idle, m.Running = idle, running
}

// What is summed up does not wrap around, whatever is reported.
func TestHugeNumbersAreSummedUp(t *testing.T) {
	member := v1alpha1.EnvClusterMember{Name: "m", Config: v1alpha1.EnvClusterMemberConfig{ScalingGroup: "g"}}
	member.Spec.Replicas = math.MaxInt32
	env := v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "py"}}
	env.Spec.Clusters = []v1alpha1.EnvClusterSpec{{ClusterID: "east", Members: []v1alpha1.EnvClusterMember{member, member}}}
	s := &Snapshot{
		Clusters: []Cluster{{ID: "east", Envs: []v1alpha1.SandboxEnv{env}}},
		Hub:      &Hub{Clusters: []*sandboxv1.Cluster{{Id: "east", Idle: math.MaxInt32, Running: math.MaxInt32}}},
	}
	if held, _ := s.held("east", "default/py", "g"); held != 2*math.MaxInt32 {
		t.Errorf("the group holds %d", held)
	}
	if pods := s.sizes().pods; pods != 2*math.MaxInt32 {
		t.Errorf("there are %d Pods", pods)
	}
}
