// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/snapshot"
)

// refusedGrowth is an Env with members a, of a group with a saturation of 7 s, b and none, and pools whose last attempts to grow
// were refused.
func refusedGrowth(attempts map[string]time.Time) *observation {
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: v1alpha1.SandboxEnvSpec{
		Clusters: []v1alpha1.EnvClusterSpec{{ClusterID: local, Members: []v1alpha1.EnvClusterMember{
			{Name: "a", Config: v1alpha1.EnvClusterMemberConfig{ScalingGroup: "g"}}, {Name: "b"}, {Name: "none"},
		}}},
		Autoscaling: &v1alpha1.EnvAutoscalingSpec{Groups: []v1alpha1.EnvAutoscalingGroup{
			{Name: "g", Enabled: true, ScaleUpPolicy: v1alpha1.PoolScaleUpPolicy{SaturationCooldownSeconds: 7}},
		}},
	}}
	o := &observation{clusterID: local, Source: snapshot.Source{Env: env}, pools: map[string]*v1alpha1.SandboxPool{}}
	for name, attempt := range attempts {
		o.pools[name] = &v1alpha1.SandboxPool{
			ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "u"}}},
			Status: v1alpha1.SandboxPoolStatus{AutoScaling: &v1alpha1.PoolAutoScalingStatus{
				LastScaleUpAttemptTime: new(metav1.NewTime(attempt)), LastScaleUpAttemptResult: v1alpha1.PoolScaleUpAttemptInsufficient,
			}},
		}
	}
	return o
}

// TestI14OnlyGroupsOfTheEnvAreSummed, with the members that their owners have in them: another cluster cannot make the list long.
func TestI14OnlyGroupsOfTheEnvAreSummed(t *testing.T) {
	o := refusedGrowth(nil)
	o.Env.Spec.Clusters = append(o.Env.Spec.Clusters, v1alpha1.EnvClusterSpec{ClusterID: "west", Members: []v1alpha1.EnvClusterMember{
		{Name: "moved", Config: v1alpha1.EnvClusterMemberConfig{ScalingGroup: "h"}},
		{Name: "former", Config: v1alpha1.EnvClusterMemberConfig{ScalingGroup: "h"}},
	}})
	theirs := v1alpha1.EnvClusterStatus{ClusterID: "west", ObservedMembers: []v1alpha1.EnvObservedMember{
		{Name: "moved", ScalingGroup: "g", IdleCount: 1}, {Name: "new", ScalingGroup: "g", IdleCount: 2}, {Name: "former", IdleCount: 4},
	}}
	for i := range 1000 {
		theirs.ObservedMembers = append(theirs.ObservedMembers,
			v1alpha1.EnvObservedMember{Name: fmt.Sprint("m", i), ScalingGroup: fmt.Sprint("x", i)})
	}
	o.Env.Status.Clusters = []v1alpha1.EnvClusterStatus{theirs}
	r := report{}
	r.total(o)
	want := []v1alpha1.EnvScalingGroupStatus{{Name: "g", TotalIdle: 3}, {Name: "h", TotalIdle: 4}}
	if !slices.Equal(r.groups, want) || r.members != 1003 || r.unused != 7 {
		t.Errorf("%d members, %d idle, groups %+v; want %+v", r.members, r.unused, r.groups, want)
	}
}

// Sums of replicas do not wrap around: the totals end at the largest number, and a group that holds more is at its ceiling.
func TestSumsOfHugeReplicas(t *testing.T) {
	o := refusedGrowth(nil)
	members := o.Env.Spec.Clusters[0].Members
	members[1].Config.ScalingGroup = "g"
	o.Env.Spec.Autoscaling.Groups[0].MaxReplicas = new(int32(10))
	for _, name := range []string{"a", "b"} {
		o.pools[name] = &v1alpha1.SandboxPool{
			ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "u"}}},
			Spec:       v1alpha1.SandboxPoolSpec{Replicas: math.MaxInt32},
		}
	}
	if !saturated(o, &members[0], o.pools["a"]) {
		t.Error("a group that holds more than its maxReplicas can grow")
	}
	theirs := v1alpha1.EnvObservedMember{
		ScalingGroup: "g", DesiredReplicas: math.MaxInt32, RunningCount: math.MaxInt32, IdleCount: math.MaxInt32,
	}
	o.Env.Status.Clusters = []v1alpha1.EnvClusterStatus{{ClusterID: "west", ObservedMembers: []v1alpha1.EnvObservedMember{theirs, theirs}}}
	r := report{}
	r.total(o)
	want := []v1alpha1.EnvScalingGroupStatus{{
		Name: "g", TotalDesired: math.MaxInt32, TotalRunning: math.MaxInt32, TotalIdle: math.MaxInt32,
	}}
	if !slices.Equal(r.groups, want) || r.desired != math.MaxInt32 || r.run != math.MaxInt32 || r.unused != math.MaxInt32 {
		t.Errorf("%d desired, %d running, %d idle, groups %+v", r.desired, r.run, r.unused, r.groups)
	}
}

// The end of a saturation causes no event: the Env is reconciled then, not up to a resync later.
func TestTheEndOfASaturationIsLookedAt(t *testing.T) {
	o := refusedGrowth(map[string]time.Time{"a": testTime.Add(-2 * time.Second), "b": testTime.Add(-time.Second)})
	o.now, o.since = testTime, testTime.Sub
	if got := untilNews(o, time.Minute); got != 5*time.Second {
		t.Errorf("looked at in %s, want 5s", got)
	}
	if got := untilNews(o, time.Second); got != time.Second {
		t.Errorf("looked at in %s, want 1s", got)
	}
}

// server is an API server whose clock can be stepped, and the machine of a worker, whose own clock is off by decades.
type server struct {
	local *testclock.FakePassiveClock
	up    time.Duration
	shows time.Time
	times *apitime.Clock
}

func newServer(shows time.Time) *server {
	s := &server{local: testclock.NewFakePassiveClock(time.Unix(1_000_000, 0)), shows: shows}
	s.times = apitime.NewOn(apitime.Machine{Boot: "a", Up: func() time.Duration { return s.up }}, s.local)
	s.answer()
	return s
}

func (s *server) pass(d time.Duration) {
	s.local.SetTime(s.local.Now().Add(d))
	s.up, s.shows = s.up+d, s.shows.Add(d)
}

func (s *server) step(d time.Duration) {
	s.shows = s.shows.Add(d)
	s.answer()
}

func (s *server) answer() {
	cfg := &rest.Config{}
	s.times.Watch(cfg)
	answer, err := cfg.WrapTransport(s).RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil))
	if err != nil {
		panic(err)
	}
	_ = answer.Body.Close()
}

func (s *server) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Header: http.Header{"Date": {s.shows.Format(http.TimeFormat)}}, Body: http.NoBody}, nil
}

// I11: a saturation keeps its length when the API server's clock is stepped, and its end is the same at each reconcile.
func TestI11SaturationAcrossSteps(t *testing.T) {
	for _, step := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		s := newServer(testTime)
		s.pass(time.Minute)
		o := refusedGrowth(map[string]time.Time{"a": s.shows})
		s.pass(3 * time.Second)
		s.step(step)
		var until *metav1.Time
		for range 30 {
			o.now = s.times.Now()
			o.since = agesAt(s.times, o.now)
			is := saturatedUntil(o, o.members()[0], o.pools["a"])
			if until == nil {
				until = is
			}
			left := 7*time.Second - s.times.Since(o.pools["a"].Status.AutoScaling.LastScaleUpAttemptTime.Time)
			switch wanted := s.shows.Add(left).Round(time.Second); {
			case left <= 0 && is != nil:
				t.Fatalf("stepped by %s: saturated until %s, which was over %s ago", step, is, -left)
			case left > 0 && (is == nil || !is.Time.Equal(wanted) || !is.Equal(until)):
				t.Fatalf("stepped by %s: %s before the end it is saturated until %v, was until %v, want %s", step, left, is, until, wanted)
			}
			s.pass(200 * time.Millisecond) // while it is decided
			if again := saturatedUntil(o, o.members()[0], o.pools["a"]); !again.Equal(is) {
				t.Fatalf("stepped by %s: it was %v, and is %v once it is decided", step, is, again)
			}
		}
		if until == nil {
			t.Errorf("stepped by %s: it was not saturated", step)
		}
	}
}
