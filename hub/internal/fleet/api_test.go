// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
)

func TestAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		key := segment.Key{Namespace: "a", Name: "py"}
		connected(t, f, "east", segment.New(key).With(
			segment.Member{
				Name: "p", State: segment.Saturated, Idle: 3, ReadyIdle: 2, Running: 4, Desired: 7, Pending: 1, SaturatedFor: time.Minute,
				Shape: segment.Share(segment.Shape{InstanceType: "cpu", Multiplier: 2, Priority: 5, ScalingGroup: "g", Image: "i"}),
			},
			segment.Member{Name: "q", State: segment.Missing, Idle: 9},
		))
		west := connected(t, f, "west", pool(key, 1), pool(env(0), 1))
		time.Sleep(2 * time.Second)

		if got := f.Keys("a"); !slices.Equal(got, []segment.Key{key}) {
			t.Errorf("keys of the namespace: %v", got)
		}
		if got := f.Keys(""); !slices.Equal(got, []segment.Key{key, env(0)}) {
			t.Errorf("keys of all namespaces: %v", got)
		}
		e := f.Env(key)
		if e.GetIdle() != 4 || e.GetRunning() != 4 || e.GetDesired() != 7 || e.GetPending() != 1 || len(e.GetClusters()) != 2 {
			t.Errorf("Env: %v", e)
		}
		first := e.GetClusters()[0]
		if first.GetClusterId() != "east" || first.GetState() != sandboxv1.ClusterState_FRESH || first.GetAge().AsDuration() != 2*time.Second {
			t.Errorf("cluster of the Env: %v", first)
		}
		want := &sandboxv1.EnvMember{
			Name: "p", State: "Saturated", ScalingGroup: "g", InstanceType: "cpu", Multiplier: 2, Priority: 5, Idle: 3, ReadyIdle: 2,
			Running: 4, Desired: 7, Pending: 1, Image: "i", SaturatedFor: first.GetMembers()[0].GetSaturatedFor(),
		}
		if got := first.GetMembers()[0]; got.String() != want.String() || got.GetSaturatedFor().AsDuration() != time.Minute {
			t.Errorf("member: %v", got)
		}
		c := f.Cluster("east")
		if c.GetEnvs() != 1 || c.GetMembers() != 2 || c.GetIdle() != 3 || c.GetVersion() != "w" || c.GetIncarnation() != 1 ||
			c.GetLastSeen().AsDuration() != 2*time.Second || !c.GetRegisteredAt().AsTime().Equal(time.Now().Add(-2*time.Second)) {
			t.Errorf("cluster: %v", c)
		}
		west.session.Close()
		if got := f.Cluster("west"); got.GetState() != sandboxv1.ClusterState_SUSPECT || got.GetMessage() != "not connected" {
			t.Errorf("a disconnected cluster: %v", got)
		}
		if f.Cluster("nowhere") != nil || f.Env(segment.Key{Namespace: "no", Name: "where"}) != nil || f.View(segment.Key{}) != nil {
			t.Error("what is not known is shown")
		}
	})
}

func TestTheRegistryOutlivesTheHub(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	for restart := range 3 {
		s, err := store.OpenBolt(path, "registry")
		must.Succeed(t, err)
		f, err := New(t.Context(), Options{Clock: clock.RealClock{}, Registry: NewRegistry(s)})
		must.Succeed(t, err)
		for _, id := range []string{"east", "west"} {
			o := newOwner(t, id, envs(3)...)
			if restart > 0 {
				if c := f.Cluster(id); c.GetState() != sandboxv1.ClusterState_UNREACHABLE || c.GetIncarnation() != uint64(restart) ||
					c.GetMessage() != "not seen since the hub started" || c.GetRegisteredAt() == nil {
					t.Errorf("restart %d: %v", restart, c)
				}
			}
			for range restart {
				o.newTerm(strings.Repeat("x", restart))
			}
			o.connect(f)
			o.remove(env(restart))
		}
		f.saveRecords(t.Context())
		if got := f.ClusterIDs(); !slices.Equal(got, []string{"east", "west"}) {
			t.Errorf("clusters %v", got)
		}
		must.Succeed(t, s.Close())
	}
}

func TestARestartedHubWaitsToHearFromItsClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := &memoryRegistry{}
		f := newFleet(t, registry)
		if got := f.Awaited(); len(got) != 0 {
			t.Errorf("a hub that knows no cluster waits for %v", got)
		}
		east := connected(t, f, "east")
		connected(t, f, "west")

		f = newFleet(t, registry)
		if got := f.Awaited(); !slices.Equal(got, []string{"east", "west"}) {
			t.Errorf("a restarted hub waits for %v", got)
		}
		if got := f.Unmet(); !slices.Equal(got, []string{"east", "west"}) {
			t.Errorf("a restarted hub has not met %v", got)
		}
		east.connect(f)
		if got := f.Awaited(); !slices.Equal(got, []string{"west"}) {
			t.Errorf("with east attached the hub waits for %v", got)
		}
		if got := f.Unmet(); !slices.Equal(got, []string{"west"}) {
			t.Errorf("with east attached the hub has not met %v", got)
		}
		time.Sleep(unreachableAfter)
		if got := f.Awaited(); len(got) != 0 {
			t.Errorf("after %s the hub still waits for %v", unreachableAfter, got)
		}
	})
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	f, err := New(t.Context(), Options{Clock: clock.RealClock{}, Registry: &memoryRegistry{}, Metrics: registry})
	must.Succeed(t, err)
	connected(t, f, "east", envs(3)...)
	for _, c := range []struct {
		name, labels string
		want         float64
	}{
		{"atoll_hub_envs", "", 3},
		{"atoll_hub_clusters", "Fresh ", 1},
		{"atoll_hub_clusters", "Silent ", 0},
		{"atoll_hub_reports_total", "applied ", 1},
	} {
		got := gathered(t, registry, c.name)
		if value, there := got[c.labels]; !there || value != c.want {
			t.Errorf("%s %q is %v, want %v (%v)", c.name, c.labels, value, c.want, got)
		}
	}
	if _, err := New(t.Context(), Options{Clock: clock.RealClock{}, Registry: &memoryRegistry{}, Metrics: registry}); err == nil {
		t.Error("the metrics were registered twice without a word")
	}
}
