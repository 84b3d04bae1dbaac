// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/segment"
)

func TestSyncShowsOtherClusters(t *testing.T) {
	c := newCluster(t)
	c.createEnv()
	c.writeLocal(7)
	s, stop := c.syncer()
	s.Connected(true)
	s.Receive(c.tell([]string{"south", "west"}, map[string]int32{"south": 0, "west": 3}))
	c.wantShown("east:true=7 south:false=0 west:false=3 InSync")

	t.Log("a write of the worker's own segment and the one here do not touch each other")
	c.writeLocal(6)
	s.Receive(c.tell([]string{"west"}, map[string]int32{"west": 4}))
	c.wantShown("east:true=6 south:false=0 west:false=4 InSync")

	t.Log("the hub names the local cluster (I3)")
	before := c.env().Status.Clusters[0]
	s.Receive(c.tell([]string{"west", "east"}, map[string]int32{"east": 99, "west": 5}))
	c.wantShown("east:true=6 south:false=0 west:false=5 InSync")
	if after := c.env().Status.Clusters[0]; !reflect.DeepEqual(before, after) {
		t.Errorf("the local segment was %+v, and is %+v", before, after)
	}

	t.Log("a user removes a segment")
	env := c.env()
	env.Status.Clusters = env.Status.Clusters[:2]
	c.must(c.Status().Update(t.Context(), env))
	c.wantShown("east:true=6 south:false=0 west:false=5 InSync")

	t.Log("nothing changes: nothing is written")
	c.settled(s)
	version := c.env().ResourceVersion
	s.Receive(c.tell([]string{"west"}, map[string]int32{"west": 5}))
	c.settled(s)
	if got := c.env().ResourceVersion; got != version {
		t.Errorf("resourceVersion went from %s to %s", version, got)
	}

	t.Log("a restarted worker, and a hub that knows no cluster, remove nothing (I5)")
	stop()
	s, _ = c.syncer()
	s.Connected(true)
	s.Receive(&federationv1.Foreign{Complete: true, Last: true})
	c.wantShown("east:true=6 south:false=0 west:false=5 ClustersStale")

	t.Log("a cluster that the hub knows has it no more")
	s.Receive(c.tell([]string{"west"}, nil))
	c.wantShown("east:true=6 south:false=0 ClustersStale")

	t.Log("the env is deleted and made again")
	s.Receive(c.tell([]string{"south", "west"}, map[string]int32{"south": 1, "west": 2}))
	c.wantShown("east:true=6 south:false=1 west:false=2 InSync")
	c.must(c.Delete(t.Context(), c.env()))
	c.createEnv()
	c.wantShown("south:false=1 west:false=2 InSync")
}

// TestSyncSaysWhichClustersDoNotServe an Env that has members of them: once this has lasted for a while, and until it ends.
func TestSyncSaysWhichClustersDoNotServe(t *testing.T) {
	c := newCluster(t)
	c.createEnv()
	clk := clocktesting.NewFakeClock(time.Now())
	s, stop := c.syncerAt(clk)
	s.Connected(true)
	federated := func(status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string) {
		t.Helper()
		c.eventually(func() error {
			clk.Step(time.Second)
			f := meta.FindStatusCondition(c.env().Status.Conditions, v1alpha1.SandboxEnvConditionFederated)
			return wait.If(f != nil && f.Status == status && f.Reason == string(reason) && f.Message == message, f)
		})
	}
	rest := func(gaps int) {
		t.Helper()
		c.eventually(func() error {
			clk.Step(time.Second)
			s.mu.Lock()
			defer s.mu.Unlock()
			return wait.If(len(s.gaps) == gaps && len(s.due)+len(s.budget.dirty) == 0,
				fmt.Sprintf("gaps %v, due %v, dirty %v", s.gaps, s.due, s.budget.dirty))
		})
	}
	enrol := func(ids ...string) *federationv1.Foreign {
		m := c.tell([]string{"west"}, nil)
		m.Registered = &federationv1.Registered{Clusters: ids}
		return m
	}
	s.Receive(enrol("east", "west"))
	federated("True", v1alpha1.ReasonInSync, "other clusters: none")

	t.Log("a user names a cluster that there is not, and one without the Env")
	rest(0)
	env := c.env()
	c.must(c.Patch(t.Context(), env, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"clusters":[
		{"clusterID":"mars","members":[{"name":"main"}]},{"clusterID":"west","members":[{"name":"main"}]}]}}`))))
	federated("False", v1alpha1.ReasonClusterMissing, "mars is not registered at the hub; west has no such Env")

	t.Log("a restarted worker says so from the start")
	stop()
	version := c.env().ResourceVersion
	s, _ = c.syncerAt(clk)
	s.Connected(true)
	s.Receive(enrol("east", "west"))
	rest(1)
	if got := c.env().ResourceVersion; got != version {
		t.Errorf("resourceVersion went from %s to %s", version, got)
	}

	t.Log("mars joins, without the Env; west gets it")
	s.Receive(&federationv1.Foreign{Last: true, Registered: &federationv1.Registered{Clusters: []string{"east", "mars", "west"}}})
	federated("False", v1alpha1.ReasonEnvMissing, "west has no such Env")
	s.Receive(c.tell([]string{"mars", "west"}, map[string]int32{"west": 1}))
	federated("False", v1alpha1.ReasonEnvMissing, "mars has no such Env")

	t.Log("an older hub lists no clusters")
	s.Connected(false)
	s.Connected(true)
	s.Receive(c.tell([]string{"mars", "west"}, map[string]int32{"west": 1}))
	federated("True", v1alpha1.ReasonInSync, "other clusters: west")
}

// TestSyncShowsTheOwnersSpec: status and condition follow it while spec stays as it was applied here (I3).
func TestSyncShowsTheOwnersSpec(t *testing.T) {
	c := newCluster(t)
	env := c.createEnv()
	c.must(c.Patch(t.Context(), env, client.RawPatch(types.MergePatchType, []byte(
		`{"spec":{"clusters":[{"clusterID":"west","members":[{"name":"main","spec":{"replicas":2},"config":{"priority":1}}]}]}}`))))
	s, _ := c.syncer()
	s.Connected(true)
	m := c.tell([]string{"west"}, map[string]int32{"west": 1})
	theirs := m.Envs[0].Segments[0].Members[0]
	theirs.ScalingGroup, theirs.Priority, theirs.Desired = "default", 1, 2
	for _, step := range []struct {
		desired int32
		want    string
	}{{2, "other clusters: west"}, {5, "other clusters: west; spec.clusters here is not what counts: west/main has 5 replicas, not 2"}} {
		theirs.Desired = step.desired
		s.Receive(m)
		c.eventually(func() error {
			got := c.env()
			f := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.SandboxEnvConditionFederated)
			if f == nil || f.Message != step.want || f.Status != metav1.ConditionTrue {
				return fmt.Errorf("Federated is %+v", f)
			}
			shown := got.Status.Clusters[0].ObservedMembers[0]
			if shown.DesiredReplicas != step.desired || shown.ScalingGroup != "default" || shown.Priority != 1 {
				return fmt.Errorf("the member is shown as %+v", shown)
			}
			if n := got.Spec.Clusters[0].Members[0].Spec.Replicas; n != 2 {
				t.Fatalf("another cluster's segment was written: %d replicas", n)
			}
			return nil
		})
	}
}

func TestSyncCollapsesWhatIsTooLarge(t *testing.T) {
	c := newCluster(t)
	c.createEnv()
	s, _ := c.syncer()
	s.Connected(true)
	m := &federationv1.Foreign{Complete: true, Last: true}
	env := &federationv1.ForeignEnv{Key: segment.Key{Namespace: "default", Name: c.name}.Proto()}
	for n := range 150 {
		id := fmt.Sprintf("cluster-%03d", n)
		m.Known = append(m.Known, id)
		foreign := &federationv1.ForeignSegment{ClusterId: id}
		for i := range 10 {
			foreign.Members = append(foreign.Members, &federationv1.MemberSegment{
				Name: fmt.Sprintf("member-%d", i), Idle: 1, State: federationv1.MemberState_ACTIVE, ScalingGroup: "default"})
		}
		env.Segments = append(env.Segments, foreign)
	}
	m.Envs = []*federationv1.ForeignEnv{env}
	s.Receive(m)
	c.eventually(func() error {
		got := c.shows()
		return wait.If(strings.HasSuffix(got, " TooLarge"), "the env is not TooLarge yet: "+got)
	})
	got := c.env()
	if len(got.Status.Clusters) != 150 || len(got.Status.Clusters[0].ObservedMembers) != 1 ||
		got.Status.Clusters[0].ObservedMembers[0].IdleCount != 10 {
		t.Errorf("it shows %d clusters, the first with %+v", len(got.Status.Clusters), got.Status.Clusters[0].ObservedMembers)
	}
	if raw, err := json.Marshal(got.Status.Clusters); err != nil || len(raw) > maxSegments {
		t.Errorf("%d bytes (%v)", len(raw), err)
	}
}

// An apply to an Env that was deleted creates no Env.
func TestApplyToADeletedEnvCreatesNone(t *testing.T) {
	c := newCluster(t)
	a, err := newApplier(c.syncConfig())
	c.must(err)
	old := c.createEnv()
	e, _ := newEntry("west", "east", []segment.Member{{Name: "main", Idle: 1}}, time.Now())
	body, err := encode(old, "east", decision{entries: []entry{e}})
	c.must(err)
	c.must(a.apply(t.Context(), old, body))
	c.wantShown("west:false=1")
	c.must(c.Delete(t.Context(), old))
	if err := a.apply(t.Context(), old, body); !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		t.Errorf("an apply to a deleted env: %v", err)
	}
	err = c.Get(t.Context(), client.ObjectKeyFromObject(old), &v1alpha1.SandboxEnv{})
	if !apierrors.IsNotFound(err) {
		t.Fatalf("the env is back: %v", err)
	}
}

func TestSyncWritesUnderItsOwnServiceAccount(t *testing.T) {
	c := newCluster(t)
	env := c.createEnv()
	own, err := client.New(c.syncConfig(), client.Options{Scheme: planetest.Scheme(c)})
	c.must(err)
	self := &authenticationv1.SelfSubjectReview{}
	c.must(own.Create(t.Context(), self))
	if got, want := self.Status.UserInfo.Username, "system:serviceaccount:"+namespace+":"+ServiceAccount; got != want {
		t.Errorf("it is %s, want %s", got, want)
	}
	body := []byte(`{"metadata":{"labels":{"x":"y"}}}`)
	if err := own.Patch(t.Context(), env, client.RawPatch(types.MergePatchType, body)); !apierrors.IsForbidden(err) {
		t.Errorf("a patch beside status: %v, want Forbidden", err)
	}
}
