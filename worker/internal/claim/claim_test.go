// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/claim/claimtest"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/sandbox"
)

// I1: a leader and a leader that does not know yet that it was replaced hand out the same Pods.
func TestI1NoPodIsReturnedTwice(t *testing.T) {
	w := claimtest.NewWorld(t)
	const pods, claimers = 24, 40
	w.MakePool(pods)
	leaders := []*claimtest.Worker{w.Lead(1), w.Lead(2)}
	for _, l := range leaders {
		l.AwaitIdle(pods)
	}
	var (
		mu      sync.Mutex
		granted = map[string]*sandboxv1.Sandbox{} // by Pod
		wg      sync.WaitGroup
		start   = make(chan struct{})
	)
	for i := range 2 * claimers {
		wg.Go(func() {
			<-start
			got, err := leaders[i%2].TryCreate(claimtest.NoQueue)
			if err != nil {
				if disposition.Of(err) != federationv1.Disposition_REFUSED {
					t.Errorf("claim %d: %v", i, err)
				}
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if other := granted[got.GetPodUid()]; other != nil {
				t.Errorf("I1: Pod %s was answered to %s and %s", got.GetPod(), other.GetId(), got.GetId())
			}
			granted[got.GetPodUid()] = got
		})
	}
	close(start)
	wg.Wait()
	if len(granted) != pods {
		t.Errorf("%d Pods were handed out, want all %d", len(granted), pods)
	}
	for _, got := range granted {
		if id := w.Pod(got.GetPod()).Labels[v1alpha1.SandboxIDLabelKey]; id != got.GetId() {
			t.Errorf("I1: Pod %s was answered as %s and carries %s", got.GetPod(), got.GetId(), id)
		}
	}
}

// I1: the claim write itself refuses a Pod that is being deleted, however late the informers are.
func TestI1ADyingPodIsNotHandedOut(t *testing.T) {
	w, l := claimtest.Start(t, 3)
	l.Blind()
	for _, pod := range w.Pods() {
		hold := []byte(`[{"op":"add","path":"/metadata/finalizers/-","value":"test.local/hold"}]`)
		w.Must(w.Live.Patch(t.Context(), &pod, client.RawPatch(types.JSONPatchType, hold)))
		t.Cleanup(func() {
			free := []byte(`{"metadata":{"finalizers":null}}`)
			_ = w.Live.Patch(context.Background(), &pod, client.RawPatch(types.MergePatchType, free))
		})
		w.Must(w.Live.Delete(t.Context(), &pod))
	}
	got, err := l.TryCreate(claimtest.NoQueue, func(c *claim.Claim) { c.Request.Wait = sandboxv1.CreateSandboxRequest_ASSIGNED })
	if err == nil {
		t.Fatalf("I1: a dying Pod was handed out: %v", got)
	}
	if disposition.Of(err) != federationv1.Disposition_REFUSED {
		t.Errorf("got %v, want a refusal", err)
	}
}

// A kubelet writes status all the time. No claim may lose its Pod to that.
func TestStatusWritesLoseNoClaim(t *testing.T) {
	const pods = 10
	w, l := claimtest.Start(t, pods)

	ctx, cancel := context.WithCancel(t.Context())
	var kubelets sync.WaitGroup
	for _, pod := range w.Pods() {
		kubelets.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				body := fmt.Sprintf(`{"status":{"message":"%d"}}`, n)
				_ = w.Live.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(body)))
			}
		})
	}
	var claims sync.WaitGroup
	for range pods {
		claims.Go(func() {
			if _, err := l.TryCreate(claimtest.NoQueue); err != nil {
				t.Error(err)
			}
		})
	}
	claims.Wait()
	cancel()
	kubelets.Wait()
	if lost := l.Metric("atoll_worker_claim_write_seconds", prometheus.Labels{"outcome": "Lost"}); lost != 0 {
		t.Errorf("%v claim writes were lost to status writes", lost)
	}
	for _, pod := range w.Pods() {
		if len(pod.ManagedFields) > 0 {
			t.Errorf("Pod %s was claimed and its managed fields are tracked still, which every write pays for: %v", pod.Name, pod.ManagedFields)
		}
	}
}

func TestSwapRunsTheImageAndLeavesNothingBehind(t *testing.T) {
	w, l := claimtest.Start(t, 1)
	got := l.MustCreate(claimtest.Image(claimtest.TenantImage), func(c *claim.Claim) {
		c.Request.Labels = map[string]string{"tier": "gold"}
		c.Request.Metadata = map[string]string{"note": "first"}
	})
	if got.GetPhase() != sandboxv1.Phase_RUNNING || got.GetImage() != claimtest.TenantImage || got.GetStartedAt() == nil {
		t.Errorf("answered %v, want it running %s", got, claimtest.TenantImage)
	}
	if got.GetLabels()["tier"] != "gold" || got.GetMetadata()["note"] != "first" || got.GetTeam() != "red" {
		t.Errorf("answered %v without what it was asked to carry", got)
	}
	first := w.Pod(got.GetPod())
	if first.Labels[v1alpha1.TenantLabelPrefix+"tier"] != "gold" || first.Labels["tier"] != "" {
		t.Errorf("its Pod has the labels %v", first.Labels)
	}

	released := l.MustRelease(got.GetId())
	if released.GetPhase() != sandboxv1.Phase_STOPPING || released.GetStopReason() != "Released" {
		t.Errorf("release answered %v", released)
	}
	l.AwaitIdle(1)
	record, err := l.Get(t.Context(), got.GetId())
	w.Must(err)
	if record.GetPhase() != sandboxv1.Phase_ENDED || record.GetImage() != claimtest.TenantImage {
		t.Errorf("the record is %v", record)
	}
	again, err := l.Release(t.Context(), got.GetId())
	if err != nil || again.GetPhase() != sandboxv1.Phase_ENDED {
		t.Errorf("released again: %v, %v", again, err)
	}

	next := l.MustCreate(claimtest.Image("test.local/other:3"), func(c *claim.Claim) { c.Request.Team, c.Request.User = "blue", "bob" })
	pod := w.Pod(next.GetPod())
	if pod.UID != first.UID {
		t.Fatalf("the Pod was replaced; this test is about one that returned to idle")
	}
	if sandbox.ContainerID(pod) == sandbox.ContainerID(first) {
		t.Error("I13: the next tenant is in the container of the first")
	}
	if len(next.GetLabels())+len(next.GetMetadata()) != 0 || pod.Labels[v1alpha1.TenantLabelPrefix+"tier"] != "" || next.GetTeam() != "blue" {
		t.Errorf("I13: the next tenant sees %v", next)
	}
}

func TestImageThatCannotBePulledIsTheRequestsFault(t *testing.T) {
	_, l := claimtest.Start(t, 1)
	_, err := l.TryCreate(claimtest.Image("test.local/fail-pull:1"))
	if p := problem.FromError(err); p == nil || p.Reason != problem.Invalid || len(p.Fields) != 1 || p.Fields[0].Field != "image" {
		t.Errorf("got %v, want INVALID naming the image", err)
	}
	if got := disposition.Of(err); got != federationv1.Disposition_DONE {
		t.Errorf("disposition %s, want DONE", got)
	}
	l.AwaitIdle(1) // the Pod, or another in its place
}

func TestLabelsThatKubernetesRefusesAreTheRequestsFault(t *testing.T) {
	_, l := claimtest.Start(t, 1)
	for _, key := range []string{"not a label", "agentbox.navix.sh/sandbox-phase", "app.kubernetes.io/name"} {
		_, err := l.TryCreate(func(c *claim.Claim) { c.Request.Labels = map[string]string{key: "x"} })
		if p := problem.FromError(err); p == nil || p.Reason != problem.Invalid {
			t.Errorf("label %q: %v, want INVALID", key, err)
		} else if len(p.Fields) != 1 || p.Fields[0].Field != "labels["+key+"]" {
			t.Errorf("label %q: the error names %+v", key, p.Fields)
		}
	}
	l.AwaitIdle(1)
	l.MustCreate()
}

func TestNodeThatIsCordonedServesNoClaim(t *testing.T) {
	w, l := claimtest.Start(t, 2)
	nodes := &corev1.NodeList{}
	w.Must(w.Live.List(t.Context(), nodes))
	cordon := func(on bool) {
		for i := range nodes.Items {
			body := fmt.Sprintf(`{"spec":{"unschedulable":%v}}`, on)
			w.Must(w.Live.Patch(context.Background(), &nodes.Items[i], client.RawPatch(types.MergePatchType, []byte(body))))
		}
	}
	t.Cleanup(func() { cordon(false) })
	cordon(true)
	l.AwaitIdle(0)
	cordon(false)
	l.AwaitIdle(2)
}

// The image that a kubelet reports is trusted only because nothing but a change of spec raises a Pod's generation.
func TestAFreshPodIsOfTheFirstGeneration(t *testing.T) {
	w, l := claimtest.Start(t, 1)
	if pod := w.Pods()[0]; pod.Generation != 1 || pod.Spec.NodeName == "" {
		t.Errorf("a Pod scheduled to %q is of generation %d, want 1", pod.Spec.NodeName, pod.Generation)
	}
	got := l.MustCreate(claimtest.Image(claimtest.TenantImage))
	if pod := w.Pod(got.GetPod()); pod.Generation != 2 {
		t.Errorf("a swapped Pod is of generation %d, want 2", pod.Generation)
	}
}

func TestALostResponseIsFoundAgain(t *testing.T) {
	var drops atomic.Int32 // responses to writes, from now on
	w := claimtest.NewWorld(t)
	l := w.Start(2, claimtest.Via(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil && r.Method == http.MethodPatch && drops.Add(-1) >= 0 {
			_ = resp.Body.Close()
			return nil, errors.New("connection lost")
		}
		return resp, err
	}))
	drops.Store(2)
	got := l.MustCreate()
	if id := w.Pod(got.GetPod()).Labels[v1alpha1.SandboxIDLabelKey]; id != got.GetId() {
		t.Errorf("answered %s, the Pod carries %s", got.GetId(), id)
	}
	l.AwaitIdle(1)
	drops.Store(1)
	if _, err := l.Release(t.Context(), got.GetId()); err != nil {
		t.Errorf("release whose answer was lost: %v", err)
	}
	if n := testutil.CollectAndCount(l.Metrics, "atoll_worker_claim_seconds"); n == 0 {
		t.Error("no claim was measured")
	}
}
