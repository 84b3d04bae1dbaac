// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/sandbox"
)

// podNetwork leads to one server for all Pods; because the addresses of the control plane's Pods lead nowhere.
type podNetwork struct {
	server *httptest.Server

	mu      sync.Mutex
	calls   int
	handler func(call int, w http.ResponseWriter, r *http.Request)
}

func newPodNetwork(t *testing.T) *podNetwork {
	n := &podNetwork{handler: func(int, http.ResponseWriter, *http.Request) {}}
	n.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // until then a server does not notice that its caller has gone
		n.mu.Lock()
		n.calls++
		call, handler := n.calls, n.handler
		n.mu.Unlock()
		handler(call, w, r)
	}))
	t.Cleanup(n.server.Close)
	return n
}

func (n *podNetwork) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, n.server.Listener.Addr().String())
}

// answer sets the Pods' response from now on, and forgets the requests so far.
func (n *podNetwork) answer(f func(call int, w http.ResponseWriter, r *http.Request)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls, n.handler = 0, f
}

func (n *podNetwork) asked() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls
}

// claimWith claims a Pod for a sandbox with a hook.
func (w *world) claimWith(pod *corev1.Pod, id, image, hooks string) {
	w.t.Helper()
	body, phase, err := sandbox.ClaimPatch(pod, &sandbox.Grant{Claim: sandbox.Claim{ID: id}, Image: image, Hooks: hooks,
		Timeouts: sandbox.Timeouts{Startup: time.Minute}, Now: time.Now()})
	w.Must(err)
	if phase != sandbox.Starting {
		w.t.Fatalf("claimed with hooks as %s", phase)
	}
	w.Must(w.Live.Patch(w.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}},
		client.RawPatch(types.JSONPatchType, body)))
}

const oneHook = `[{"name":"init","http":{"port":8080,"path":"/init","body":"hunter2"},"retries":3}]`

// A sandbox whose hooks are not done is not running, although its Pod is; and nothing of its hooks is left for the next (I13).
func TestHooksAreDoneBeforeASandboxRuns(t *testing.T) {
	t.Parallel()
	w, pod := newIdlePod(t)
	for i, image := range []string{"test.local/tenant:1", "test.local/tenant:2"} {
		var mu sync.Mutex
		var seen []string
		w.network.answer(func(call int, rw http.ResponseWriter, _ *http.Request) {
			now := w.pod(pod.Name)
			mu.Lock()
			seen = append(seen, fmt.Sprintf("%s %v %s", sandbox.PhaseOf(now), ready(now), now.Status.ContainerStatuses[0].Image))
			mu.Unlock()
			if call < 3 {
				rw.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		id := fmt.Sprint("sb-", i)
		w.claimWith(w.pod(pod.Name), id, image, oneHook)
		running := w.awaitPhase(pod.Name, sandbox.Running)
		mu.Lock()
		if want := strings.Repeat(" starting true "+image, 3); " "+strings.Join(seen, " ") != want {
			t.Errorf("the hook saw %q", seen)
		}
		mu.Unlock()
		if s := sandbox.Read(running); s.ContainerID != sandbox.ContainerID(running) || s.Hooks != oneHook {
			t.Errorf("running as %+v", s)
		}
		w.release("p", pod.Name)
		idle := w.awaitPhase(pod.Name, sandbox.Idle)
		if s := sandbox.Read(idle); s.Hooks != "" || idle.UID != pod.UID {
			t.Errorf("idle again with hooks %q, as %s", s.Hooks, idle.UID)
		}
		w.awaitRecord(id, v1alpha1.SandboxStopReasonReleased, "")
		w.awaitIdle("p", 1, 0)
	}
}

// The image is right, and the sandbox still waits for its hooks; it keeps the container.
func TestHooksWithoutASwap(t *testing.T) {
	w, pod := newIdlePod(t)
	w.claimWith(&pod, "sb", "test.local/idle:1", oneHook)
	running := w.awaitPhase(pod.Name, sandbox.Running)
	if sandbox.ContainerID(running) != sandbox.ContainerID(&pod) || w.network.asked() != 1 {
		t.Errorf("runs in %s, was %s; asked %d times", sandbox.ContainerID(running), sandbox.ContainerID(&pod), w.network.asked())
	}
}

func TestAFailedHookFailsTheSandbox(t *testing.T) {
	t.Parallel()
	w, pod := newIdlePod(t)
	w.network.answer(func(_ int, rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusTeapot) })
	w.claimWith(&pod, "sb", "test.local/tenant:1", oneHook)
	record := w.awaitRecord("sb", v1alpha1.SandboxStopReasonFailed, "PostStartHookFailed")
	if record.StartedAt != nil || record.FailureMessage != `hook 0 (http, "init") failed 4 of 4 times: status 418` {
		t.Errorf("started %v, %q", record.StartedAt, record.FailureMessage)
	}
	w.awaitGone(&pod)
	w.awaitIdle("p", 1, 0)
}

// A leader that ends in the middle of a hook leaves it to the next one; a finished hook does not run again.
func TestHooksOutliveTheirLeader(t *testing.T) {
	t.Parallel()
	w, pod := newIdlePod(t)
	begun := make(chan struct{}, 8)
	w.network.answer(func(call int, _ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		if call == 1 {
			<-r.Context().Done()
		}
	})
	w.claimWith(&pod, "sb", "test.local/tenant:1", oneHook)
	<-begun
	w.stop()
	if phase := sandbox.PhaseOf(w.pod(pod.Name)); phase != sandbox.Starting {
		t.Fatalf("%s after a leader that did not see the hook's end", phase)
	}
	w.restart()
	w.awaitPhase(pod.Name, sandbox.Running)
	w.stop()
	w.restart()
	w.setReplicas("p", 2) // the next leader has reconciled the pool once there is a second Pod
	w.awaitIdle("p", 1, 1)
	if n := w.network.asked(); n != 2 || sandbox.PhaseOf(w.pod(pod.Name)) != sandbox.Running {
		t.Errorf("asked %d times", n)
	}
}

// I13: a release ends a running hook, and nothing of it reaches the Pod's next life.
func TestAReleaseEndsItsHooks(t *testing.T) {
	t.Parallel()
	w, pod := newIdlePod(t)
	begun, left := make(chan struct{}), make(chan struct{})
	w.network.answer(func(_ int, _ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(left)
	})
	w.claimWith(&pod, "sb", "test.local/tenant:1", `[{"http":{"port":8080},"timeout":"5m"}]`)
	<-begun
	w.release("p", pod.Name)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-left:
	case <-timer.C:
		t.Fatal("the hook goes on")
	}
	w.awaitRecord("sb", v1alpha1.SandboxStopReasonCanceled, "")
	w.awaitIdle("p", 1, 0)
	w.Eventually("the hooks to be forgotten", func() error {
		n := w.network.asked()
		return wait.If(n == 1, "asked again")
	})
}
