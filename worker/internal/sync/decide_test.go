// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/segment"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func set(ids ...string) map[string]struct{} {
	out := map[string]struct{}{}
	for _, id := range ids {
		out[id] = struct{}{}
	}
	return out
}

func told(idle int32, stale bool) *foreignSegment {
	return &foreignSegment{stale: stale, receivedAt: now, members: []segment.Member{
		{Name: "main", State: segment.Active, Idle: idle, Desired: 5, Current: 5, Shape: segment.Share(segment.Shape{ScalingGroup: "default"})},
	}}
}

func shown(id string, idle int32) v1alpha1.EnvClusterStatus {
	earlier := metav1.NewTime(now.Add(-time.Hour))
	return v1alpha1.EnvClusterStatus{ClusterID: id, LastSnapshotTime: &earlier, ObservedMembers: []v1alpha1.EnvObservedMember{
		{Name: "main", State: v1alpha1.ObservedMemberStateActive, ScalingGroup: "default", IdleCount: idle, DesiredReplicas: 5,
			CurrentReplicas: 5},
	}}
}

func federated(status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: "Federated", Status: status, Reason: string(reason), Message: message,
		LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
}

func env(conditions []metav1.Condition, clusters ...v1alpha1.EnvClusterStatus) *v1alpha1.SandboxEnv {
	return &v1alpha1.SandboxEnv{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "py", UID: types.UID("u1")},
		Status:     v1alpha1.SandboxEnvStatus{Clusters: clusters, Conditions: conditions},
	}
}

// text renders a decision: verdict, entries with the first member's idle count, the condition.
func text(d decision) string {
	var b strings.Builder
	b.WriteString(string(d.verdict))
	for _, e := range d.entries {
		fmt.Fprintf(&b, " %s=%d", e.ClusterID, e.ObservedMembers[0].IdleCount)
	}
	if c := d.condition; c != nil {
		fmt.Fprintf(&b, " | %s %s: %s", c.Status, c.Reason, c.Message)
	}
	return b.String()
}

func TestDecide(t *testing.T) {
	local := v1alpha1.EnvClusterStatus{ClusterID: "east", IsLocal: true}
	inSync := federated("True", v1alpha1.ReasonInSync, "other clusters: west")
	deleting := env(nil)
	deleting.DeletionTimestamp = &metav1.Time{Time: now}
	for name, c := range map[string]struct {
		facts facts
		want  string
	}{
		"first word": {
			facts{env: env(nil, local), view: view{"west": told(3, false)}, known: set("west"), heard: set("west"), hub: hubInSync},
			"SegmentsDiffer west=3 | True InSync: other clusters: west"},
		"nothing new": {
			facts{env: env(inSync, local, shown("west", 3)), view: view{"west": told(3, false)}, known: set("west"), heard: set("west"),
				hub: hubInSync},
			"UpToDate west=3 | True InSync: other clusters: west"},
		"removed by a user": {
			facts{env: env(inSync, local), view: view{"west": told(3, false)}, known: set("west"), heard: set("west"), hub: hubInSync},
			"SegmentsDiffer west=3 | True InSync: other clusters: west"},
		"I5: a cluster that the hub does not know keeps its segment": {
			facts{env: env(inSync, local, shown("west", 3)), hub: hubInSync},
			"ConditionDiffers west=3 | False ClustersStale: the hub has not heard lately from: west"},
		"I5: a restarted worker removes nothing": {
			facts{env: env(inSync, local, shown("west", 3)), hub: hubPending},
			"UpToDate west=3 | True InSync: other clusters: west"},
		"gone from a cluster that is known": {
			facts{env: env(inSync, local, shown("west", 3)), known: set("west"), heard: set("west"), hub: hubInSync},
			"SegmentsDiffer | True InSync: other clusters: none"},
		"removed explicitly, cluster not known": {
			facts{env: env(inSync, local, shown("west", 3)), view: view{"west": nil}, hub: hubInSync},
			"SegmentsDiffer | True InSync: other clusters: none"},
		"stale": {
			facts{env: env(inSync, local, shown("west", 3)), view: view{"west": told(3, true)}, known: set("west"), heard: set("west"),
				hub: hubInSync},
			"ConditionDiffers west=3 | False ClustersStale: the hub has not heard lately from: west"},
		"known from an earlier connection only": {
			facts{env: env(inSync, local, shown("west", 3)), view: view{"west": told(3, false)}, known: set("west"), hub: hubInSync},
			"ConditionDiffers west=3 | False ClustersStale: the hub has not heard lately from: west"},
		"no hub": {
			facts{env: env(inSync, local, shown("west", 3)), view: view{"west": told(3, false)}, known: set("west"), hub: hubUnreachable},
			"ConditionDiffers west=3 | False HubUnreachable: no hub is connected; shown as last heard: west"},
		"no hub, and why": {
			facts{env: env(nil, local), hub: hubUnreachable, cause: "connection refused"},
			"ConditionDiffers | False HubUnreachable: no hub is connected: connection refused; shown as last heard: none"},
		"a hub on its way says nothing yet": {
			facts{env: env(nil, local), hub: hubPending}, "UpToDate"},
		"no other cluster": {
			facts{env: env(nil, local), hub: hubInSync}, "ConditionDiffers | True InSync: other clusters: none"},
		"I3: the hub names the local cluster": {
			facts{env: env(nil, local), view: view{"east": told(9, false), "west": told(1, false)}, known: set("west", "east"),
				heard: set("west", "east"), hub: hubInSync},
			"SegmentsDiffer west=1 | True InSync: other clusters: west"},
		"one that the hub told of, and one that it does not know": {
			facts{env: env(inSync, local, shown("north", 3), shown("west", 3)), view: view{"north": told(3, false)}, known: set("north"),
				heard: set("north"), hub: hubInSync},
			"ConditionDiffers north=3 west=3 | False ClustersStale: the hub has not heard lately from: west"},
		"being deleted": {
			facts{env: deleting, view: view{"west": told(1, false)}, hub: hubInSync}, "Leaving"},
	} {
		t.Run(name, func(t *testing.T) {
			c.facts.local, c.facts.now = "east", now
			d := decide(c.facts)
			if got := text(d); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
			if writes := strings.HasPrefix(c.want, "SegmentsDiffer") || strings.HasPrefix(c.want, "ConditionDiffers"); d.write() != writes {
				t.Errorf("it writes: %t", d.write())
			}
		})
	}
}

// having adds segments of clusters to an Env's spec, each with a member.
func having(e *v1alpha1.SandboxEnv, ids ...string) *v1alpha1.SandboxEnv {
	for _, id := range ids {
		e.Spec.Clusters = append(e.Spec.Clusters, v1alpha1.EnvClusterSpec{ClusterID: id, Members: []v1alpha1.EnvClusterMember{
			{Name: "main", Config: v1alpha1.EnvClusterMemberConfig{ScalingGroup: "default"}}}})
	}
	return e
}

// TestGaps decides about an Env in east that has members of further clusters. A gap without a time was first seen just now.
func TestGaps(t *testing.T) {
	inSync := federated("True", v1alpha1.ReasonInSync, "other clusters: west")
	marsMissing := federated("False", v1alpha1.ReasonClusterMissing, "mars is not registered at the hub")
	noneInWest := federated("False", v1alpha1.ReasonEnvMissing, "west has no such Env")
	long, short := now.Add(-patience), now.Add(-patience+time.Second)
	mars, west := gap{"mars", v1alpha1.ReasonClusterMissing}, gap{"west", v1alpha1.ReasonEnvMissing}
	empty := env(inSync)
	empty.Spec.Clusters = []v1alpha1.EnvClusterSpec{{ClusterID: "mars"}}
	here := view{"west": told(3, false)}
	for name, c := range map[string]struct {
		facts facts
		want  string
		again time.Duration
	}{
		"all serve": {facts{env: having(env(inSync, shown("west", 3)), "east", "west"), view: here, registered: set("east", "west")},
			"UpToDate west=3 | True InSync: other clusters: west", 0},
		"a gap just seen is not told": {
			facts{env: having(env(inSync, shown("west", 3)), "east", "mars", "west"), view: here, registered: set("east", "west")},
			"UpToDate west=3 | True InSync: other clusters: west", patience},
		"nor one a second too young": {
			facts{env: having(env(inSync, shown("west", 3)), "mars"), view: here, registered: set("east", "west"),
				gaps: map[gap]time.Time{mars: short}},
			"UpToDate west=3 | True InSync: other clusters: west", time.Second},
		"a cluster that is not registered": {
			facts{env: having(env(inSync, shown("west", 3)), "mars"), view: here, registered: set("east", "west"),
				gaps: map[gap]time.Time{mars: long}},
			"ConditionDiffers west=3 | False ClusterMissing: mars is not registered at the hub", 0},
		"a cluster without the Env": {
			facts{env: having(env(inSync), "west"), registered: set("east", "west"), gaps: map[gap]time.Time{west: long}},
			"ConditionDiffers | False EnvMissing: west has no such Env", 0},
		"both": {
			facts{env: having(env(inSync), "west", "venus", "mars"), registered: set("east", "west"),
				gaps: map[gap]time.Time{west: long, mars: long, {"venus", v1alpha1.ReasonClusterMissing}: long}},
			"ConditionDiffers | False ClusterMissing: mars, venus are not registered at the hub; west has no such Env", 0},
		"told already": {
			facts{env: having(env(noneInWest), "west"), registered: set("east", "west"), gaps: map[gap]time.Time{west: long}},
			"UpToDate | False EnvMissing: west has no such Env", 0},
		"a restarted worker does not take back what it said": {
			facts{env: having(env(marsMissing), "mars"), registered: set("east", "west")},
			"UpToDate | False ClusterMissing: mars is not registered at the hub", 0},
		"nor does it say the other of a cluster at once": {
			facts{env: having(env(marsMissing), "mars"), registered: set("east", "mars"), heard: set("mars")},
			"ConditionDiffers | True InSync: other clusters: none", patience},
		"closed": {
			facts{env: having(env(noneInWest, shown("west", 3)), "west"), view: here, registered: set("east", "west"),
				gaps: map[gap]time.Time{west: long}},
			"ConditionDiffers west=3 | True InSync: other clusters: west", 0},
		"a cluster that has joined needs its own time for the Env": {
			facts{env: having(env(inSync), "mars"), registered: set("east", "mars"), heard: set("mars"), gaps: map[gap]time.Time{mars: long}},
			"ConditionDiffers | True InSync: other clusters: none", patience},
		"registered, and not heard of": {
			facts{env: having(env(inSync), "mars"), registered: set("east", "mars")},
			"ConditionDiffers | True InSync: other clusters: none", 0},
		"a hub that does not list its clusters": {
			facts{env: having(env(inSync), "mars", "west"), gaps: map[gap]time.Time{mars: long, west: long}},
			"ConditionDiffers | True InSync: other clusters: none", 0},
		"no members there": {facts{env: empty, registered: set("east"), gaps: map[gap]time.Time{mars: long}},
			"ConditionDiffers | True InSync: other clusters: none", 0},
		"with a cluster that is stale": {
			facts{env: having(env(inSync, shown("west", 3)), "mars"), view: view{"west": told(3, true)}, registered: set("east", "west"),
				gaps: map[gap]time.Time{mars: long}},
			"ConditionDiffers west=3 | False ClustersStale: the hub has not heard lately from: west; mars is not registered at the hub", 0},
		"without a hub": {
			facts{env: having(env(inSync, shown("west", 3)), "mars"), view: here, registered: set("east", "west"), hub: hubUnreachable,
				gaps: map[gap]time.Time{mars: long}},
			"ConditionDiffers west=3 | False HubUnreachable: no hub is connected; shown as last heard: west", 0},
	} {
		t.Run(name, func(t *testing.T) {
			c.facts.local, c.facts.now, c.facts.known = "east", now, set("west")
			if c.facts.heard == nil {
				c.facts.heard = set("west")
			}
			if c.facts.hub == "" {
				c.facts.hub = hubInSync
			}
			d := decide(c.facts)
			if got := text(d); got != c.want || d.again != c.again {
				t.Errorf("\n got %s, again in %s\nwant %s, again in %s", got, d.again, c.want, c.again)
			}
			c.facts.gaps, c.facts.now = d.gaps, now.Add(patience)
			if later := decide(c.facts); later.again != 0 {
				t.Errorf("after its patience it decides again in %s", later.again)
			}
		})
	}
}

// TestDifferences: what other clusters' owners have is told where spec.clusters, as applied here, is otherwise.
func TestDifferences(t *testing.T) {
	e := having(env(nil), "east", "south", "west")
	e.Spec.Clusters[0].Members[0].Config.Priority = 9 // its own: no difference
	theirs := &e.Spec.Clusters[2].Members[0]
	theirs.Spec.Replicas = 5
	owner := segment.Shape{ScalingGroup: "default"}
	decision := func() string {
		v := view{"west": {receivedAt: now, members: []segment.Member{{Name: "main", Desired: 5, Shape: segment.Share(owner)}}}}
		d := decide(facts{local: "east", env: e, view: v, known: set("west"), heard: set("west"), hub: hubInSync, now: now})
		if d.condition.Status != metav1.ConditionTrue || d.condition.Reason != string(v1alpha1.ReasonInSync) {
			t.Errorf("a difference is no fault: %+v", d.condition)
		}
		others, differing, _ := strings.Cut(d.condition.Message, "; spec.clusters here is not what counts: ")
		if others != "other clusters: west" {
			t.Errorf("the message names no clusters: %q", d.condition.Message)
		}
		return differing
	}
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"as applied", func() {}, ""},
		{"scaled there", func() { theirs.Spec.Replicas = 2 }, "west/main has 5 replicas, not 2"},
		{"replicas are not stated here", func() { theirs.Spec.Replicas = 0 }, ""},
		{"replicas of an autoscaler", func() {
			theirs.Spec.Replicas = 2
			e.Spec.Autoscaling = &v1alpha1.EnvAutoscalingSpec{Groups: []v1alpha1.EnvAutoscalingGroup{{Name: "default", Enabled: true}}}
		}, ""},
		{"another shape", func() { owner.InstanceType, owner.Multiplier, owner.Priority = "small", 2, 7 },
			`west/main has instance type "small" x2, not "" x0 and priority 7, not 0`},
		{"another group", func() { owner = segment.Shape{ScalingGroup: "batch"} }, `west/main has scaling group "batch", not "default"`},
		{"another member", func() { theirs.Name, owner.ScalingGroup = "old", "default" },
			"west has no member old, west has a member main"},
	} {
		step.change()
		if got := decision(); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}

// TestEveryClusterIsShown, whichever come before it that are not.
func TestEveryClusterIsShown(t *testing.T) {
	f := facts{local: "east", now: now, hub: hubInSync, env: env(nil), view: view{"east": told(1, false)}}
	for i := range 60 {
		f.view[fmt.Sprint("there-", i)] = told(1, false)
		f.view[fmt.Sprint("gone-", i)] = nil
	}
	if d := decide(f); len(d.entries) != 60 {
		t.Errorf("%d clusters are shown of 60", len(d.entries))
	}
}

func TestList(t *testing.T) {
	many := strings.Split(strings.Repeat("a ", maxNamed)+"b c", " ")
	for n, want := range map[int]string{
		0: "none", 1: "a", maxNamed: strings.Join(many[:maxNamed], ", "), maxNamed + 2: strings.Join(many[:maxNamed], ", ") + " and 2 more",
	} {
		if got := list(many[:n]); got != want {
			t.Errorf("%d are named %q", n, got)
		}
	}
}

func TestTransitionTimeChangesWithTheStatusOnly(t *testing.T) {
	f := facts{local: "east", now: now, hub: hubInSync,
		env:  env(federated("False", v1alpha1.ReasonHubUnreachable, "x"), shown("west", 3)),
		view: view{"west": told(3, true)}, known: set("west"), heard: set("west")}
	if got := decide(f).condition; !got.LastTransitionTime.Time.Equal(now.Add(-time.Hour)) {
		t.Errorf("the status stayed False, and the transition time became %s", got.LastTransitionTime)
	}
	f.view["west"].stale = false
	if got := decide(f).condition; !got.LastTransitionTime.Time.Equal(now) {
		t.Errorf("the status became True, and the transition time is %s", got.LastTransitionTime)
	}
}

// I3: even a decision that contains a local segment is not written.
func TestI3EncodeRefusesTheLocalSegment(t *testing.T) {
	for _, e := range []entry{{ClusterID: "east"}, {ClusterID: "west", IsLocal: true}} {
		if body, err := encode(env(nil), "east", decision{entries: []entry{e}}); !errors.Is(err, errLocal) {
			t.Errorf("%+v was encoded: %s", e, body)
		}
	}
}

func TestEncode(t *testing.T) {
	e, ok := newEntry("west", "east", []segment.Member{{Name: "main", State: segment.Unknown}}, now)
	if !ok {
		t.Fatal("no entry")
	}
	body, err := encode(env(nil), "east", decision{entries: []entry{e}})
	must.Succeed(t, err)
	const want = `{"apiVersion":"agents.navix.sh/v1alpha1","kind":"SandboxEnv",` +
		`"metadata":{"name":"py","namespace":"default","uid":"u1"},"status":{"clusters":[{"clusterID":"west","isLocal":false,` +
		`"observedMembers":[{"name":"main","idleCount":0,"runningCount":0,"desiredReplicas":0,"currentReplicas":0,"pendingRequests":0}],` +
		`"lastSnapshotTime":"2026-01-02T03:04:05Z"}]}}`
	if string(body) != want {
		t.Errorf("\n got %s\nwant %s", body, want)
	}

	body, err = encode(env(nil), "east", decision{})
	must.Succeed(t, err)
	const none = `{"apiVersion":"agents.navix.sh/v1alpha1","kind":"SandboxEnv",` +
		`"metadata":{"name":"py","namespace":"default","uid":"u1"},"status":{}}`
	if string(body) != none {
		t.Errorf("without foreign segments\n got %s\nwant %s", body, none)
	}
}

func TestTooLargeCollapses(t *testing.T) {
	crowd := func(clusters, members, groups int) view {
		v := view{}
		for c := range clusters {
			s := &foreignSegment{receivedAt: now}
			for m := range members {
				s.members = append(s.members, segment.Member{Name: fmt.Sprintf("member-%02d", m), State: segment.Saturated,
					Idle: 1, Running: 2, Shape: segment.Share(segment.Shape{ScalingGroup: fmt.Sprintf("group-%02d", m%groups)})})
			}
			s.members[0].State = segment.Active
			v[fmt.Sprintf("cluster-%03d", c)] = s
		}
		return v
	}
	for name, c := range map[string]struct {
		view    view
		members []string
		idle    int32
	}{
		"by group":   {crowd(100, 20, 2), []string{"total:group-00", "total:group-01"}, 10},
		"by cluster": {crowd(256, 32, 16), []string{"total:"}, 32},
	} {
		t.Run(name, func(t *testing.T) {
			known := map[string]struct{}{}
			for id := range c.view {
				known[id] = struct{}{}
			}
			d := decide(facts{local: "east", env: env(nil), view: c.view, known: known, heard: known, hub: hubInSync, now: now})
			if d.condition.Reason != string(v1alpha1.ReasonTooLarge) || !strings.Contains(d.condition.Message, "cluster-000") {
				t.Errorf("the condition is %+v", d.condition)
			}
			if len(d.entries) != len(c.view) {
				t.Errorf("%d clusters are left of %d", len(d.entries), len(c.view))
			}
			var names []string
			for _, m := range d.entries[0].ObservedMembers {
				names = append(names, m.Name)
			}
			first := d.entries[0].ObservedMembers[0]
			if !slices.Equal(names, c.members) || first.IdleCount != c.idle || first.State != v1alpha1.ObservedMemberStateActive {
				t.Errorf("members are %v, the first is %+v", names, first)
			}
			if size := sizeOf(d.entries); size > maxSegments {
				t.Errorf("%d bytes are left", size)
			}
			// What was collapsed and read back is the same: no write after the write.
			raw, err := json.Marshal(d.entries)
			must.Succeed(t, err)
			written := env([]metav1.Condition{*d.condition})
			must.Succeed(t, json.Unmarshal(raw, &written.Status.Clusters))
			again := decide(facts{local: "east", env: written, view: c.view, known: known, heard: known, hub: hubInSync, now: now.Add(time.Hour)})
			if again.verdict != upToDate {
				t.Errorf("written, it is %s", again.verdict)
			}
		})
	}
}
