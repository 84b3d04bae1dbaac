// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/worker/internal/claim/claimtest"
)

// I1: what looks idle after etcd was restored from a backup may run a sandbox.
func TestI1IdlePodsAreReplacedAfterEtcdWasRestored(t *testing.T) {
	w, first, s := newCluster(t, 3)
	claimed := s.ask(1, &federationv1.Dispatch{Call: w.claimCall("py", w.hash(1))}).GetSandbox().GetPod()
	old := map[types.UID]string{}
	for _, pod := range w.pods() {
		old[pod.UID] = pod.Name
		if pod.Name == claimed { // idle for too long, according to this etcd
			body := fmt.Sprintf(`{"metadata":{"annotations":{%q:"3600",%q:"2026-01-01T00:00:00Z"}}}`,
				v1alpha1.SandboxIdleTimeoutAnnotationKey, v1alpha1.SandboxStartedAtAnnotationKey)
			w.Must(first.stop())
			w.Must(w.Live.Patch(t.Context(), &pod, client.RawPatch(types.MergePatchType, []byte(body))))
		}
	}
	w.hub.set(func() { w.hub.welcome.EtcdRestored, w.hub.view = true, segment.Snapshot{} })
	w.lead(clusterID)
	w.hub.session()
	w.hub.shows("py", 2)
	left := ""
	for _, pod := range w.pods() {
		if name, was := old[pod.UID]; was && pod.DeletionTimestamp == nil {
			left += name + " "
		}
		if pod.Name == claimed && pod.Labels[v1alpha1.SandboxPhaseLabelKey] != v1alpha1.SandboxPhaseRunning {
			t.Errorf("I6: what runs is %s, by what a restored etcd says of its activity", pod.Labels[v1alpha1.SandboxPhaseLabelKey])
		}
	}
	if left != claimed+" " {
		t.Errorf("of the old Pods %sare left, want %s, which is claimed", left, claimed)
	}
}

// I1: none of it is served, not even locally, before the hub has had the time to report the restore.
func TestI1NothingIsServedBeforeTheHubsWordOnEtcd(t *testing.T) {
	w := newWorld(t)
	w.makeEnv("py", 1)
	said, say := make(chan struct{}), make(chan struct{})
	w.hub.onHello = func() { said <- struct{}{}; <-say }
	worker := w.lead(clusterID)
	<-said
	select {
	case <-worker.agent.ready:
		t.Error("I1: claims are served before the welcome")
	default:
		if worker.claims.Serving() {
			t.Error("I1: claims are served and not said to be")
		}
	}
	close(say)
	w.hub.session()
	w.hub.shows("py", 1)
	if !worker.claims.Serving() {
		t.Error("claims are not served")
	}
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// I1: nothing is served while idle Pods cannot be replaced after the hub has said that etcd was restored.
func TestI1NothingIsServedBeforeIdlePodsAreReplaced(t *testing.T) {
	w, first, _ := newCluster(t, 1)
	w.Must(first.stop())
	w.hub.set(func() { w.hub.welcome.EtcdRestored, w.hub.view = true, segment.Snapshot{} })
	var heals atomic.Bool
	var tries atomic.Int32
	cfg := w.Config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodDelete || !strings.Contains(r.URL.Path, "/pods/") || heals.Load() {
				return next.RoundTrip(r)
			}
			tries.Add(1)
			return nil, errors.New("the API server deletes nothing")
		})
	})
	worker := w.leadOn(cfg, clusterID, func(*Options) {})
	// The third try is of the second attempt to attach.
	w.Eventually("three tries to replace the idle Pod", func() error { return wait.If(tries.Load() >= 3, tries.Load()) })
	if worker.agent.armed() {
		t.Error("I1: claims are served while a Pod that may run a sandbox looks idle")
	}
	heals.Store(true)
	w.hub.session()
	w.hub.shows("py", 1)
	if !worker.claims.Serving() {
		t.Error("claims are not served")
	}
}

// I1: a Pod that looks idle is replaced also if it changes just before it is deleted, as when its kubelet writes its status.
func TestI1AnIdlePodThatChangesIsReplaced(t *testing.T) {
	w, first, _ := newCluster(t, 1)
	w.Must(first.stop())
	old := w.pods()[0]
	w.hub.set(func() { w.hub.welcome.EtcdRestored, w.hub.view = true, segment.Snapshot{} })
	var changed atomic.Bool
	cfg := w.Config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/pods/"+old.Name) && !changed.Swap(true) {
				body := []byte(`{"metadata":{"annotations":{"changed":"yes"}}}`)
				if err := w.Live.Patch(r.Context(), old.DeepCopy(), client.RawPatch(types.MergePatchType, body)); err != nil {
					t.Error(err)
				}
			}
			return next.RoundTrip(r)
		})
	})
	w.leadOn(cfg, clusterID, func(*Options) {})
	w.hub.session()
	w.hub.shows("py", 1)
	for _, pod := range w.pods() {
		if pod.UID == old.UID && pod.DeletionTimestamp == nil {
			t.Errorf("I1: %s, which may run a sandbox, is kept", pod.Name)
		}
	}
	if !changed.Load() {
		t.Error("the Pod was not deleted")
	}
}

// I8: a hub that accepts a stream and then sends nothing delays no claim for long.
func TestI8AHubThatSaysNothingHoldsUpNoCaller(t *testing.T) {
	w := newWorld(t)
	w.makeEnv("py", 1)
	over := make(chan struct{})
	w.hub.onHello = func() { <-over }
	worker := w.lead(clusterID)
	began := time.Now()
	w.Eventually("claims to be served", func() error { return wait.If(worker.claims.Serving(), "they are not") })
	if took := time.Since(began); took > silence*2/3 {
		t.Errorf("I8: it took %s", took)
	}
	close(over)
}

// I1, I6: an etcd that is restored under a leader ends its term, with idle Pods replaced, and leaves running sandboxes.
func TestI1ATermEndsWhenTheHubSaysThatEtcdWasRestored(t *testing.T) {
	w, first, s := newCluster(t, 3)
	claimed := s.ask(1, &federationv1.Dispatch{Call: w.claimCall("py", w.hash(1))}).GetSandbox().GetPod()
	old := map[types.UID]bool{}
	for _, pod := range w.pods() {
		old[pod.UID] = true
	}
	w.hub.set(func() { w.hub.restored = true })
	if err := first.end(); !errors.Is(err, errRestored) {
		t.Fatalf("the worker ended with %v", err)
	}
	var left []string
	for _, pod := range w.pods() {
		if old[pod.UID] && pod.DeletionTimestamp == nil {
			left = append(left, pod.Name)
		}
	}
	if got := strings.Join(left, " "); got != claimed {
		t.Errorf("of the old Pods %s are left, want %s, which is claimed", got, claimed)
	}
}

// past is an API server whose etcd is at one revision after the other.
type past struct {
	client.Reader
	revisions []string
}

func (p *past) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.SetResourceVersion(p.revisions[0])
	p.revisions = p.revisions[1:]
	return nil
}

func TestARevisionThatGoesBackIsARestore(t *testing.T) {
	a := &Agent{
		reader: &past{revisions: []string{"10", "10", "12", "11", "13"}}, revision: newRevision(),
		opts: Options{Clock: clock.RealClock{}, Log: logr.Discard(), Inventory: claimtest.New(t, &rest.Config{}, clusterID)},
	}
	for i, want := range []bool{false, false, false, true, false} {
		if _, err := a.resourceVersion(t.Context()); errors.Is(err, errRestored) != want {
			t.Errorf("answer %d: %v", i, err)
		}
	}
}
