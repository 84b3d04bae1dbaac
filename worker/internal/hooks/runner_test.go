// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

// client-go's heartbeat notices a connection that was closed without a message at its next ping, within 5 s.
func TestMain(m *testing.M) {
	east.Main(m, goleak.IgnoreTopFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"))
}

var poolName = types.NamespacedName{Namespace: "default", Name: "p"}

// node is a Pod, the network around it, and the commands that its container got. Its fields change under the lock.
type node struct {
	t    *testing.T
	conn chan net.Conn

	mu      sync.Mutex
	pod     *corev1.Pod
	readErr error
	held    bool
	dialed  []string
	done    []string // commands and requests, in their order
	exec    func(ctx context.Context, container string, command []string) error
	serve   http.HandlerFunc
	news    int
	guard   guard
}

// guard counts the commands whose end is unknown.
type guard struct {
	open  bool
	count int
}

func (n *node) BeginExec(pod types.UID, sandbox string) (done func(), ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.guard.open || pod != "u1" || sandbox != "s1" {
		return nil, false
	}
	n.guard.count++
	return func() { n.change(func() { n.guard.count-- }) }, true
}

func (n *node) executing() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.guard.count
}

func newNode(t *testing.T, hooks string) *node {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "p-1", UID: "u1",
		Labels: map[string]string{
			v1alpha1.SandboxPoolLabelKey: "p", v1alpha1.SandboxPhaseLabelKey: "starting", v1alpha1.SandboxIDLabelKey: "s1",
		},
		Annotations: map[string]string{v1alpha1.SandboxPostStartHooksAnnotationKey: hooks},
	}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "app:1"}}
	pod.Status.PodIP = "10.0.0.7"
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "c1"}}
	n := &node{guard: guard{open: true}, t: t, conn: make(chan net.Conn), pod: pod, held: true}
	n.exec = func(context.Context, string, []string) error { return nil }
	n.serve = func(http.ResponseWriter, *http.Request) {}
	return n
}

// Accept, Close and Addr make the Pod's port a listener.
func (n *node) Accept() (net.Conn, error) {
	c, ok := <-n.conn
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (n *node) Close() error   { return nil }
func (n *node) Addr() net.Addr { return &net.TCPAddr{} }

func (n *node) dial(_ context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dialed = append(n.dialed, address)
	n.mu.Unlock()
	if !strings.HasSuffix(address, ":80") {
		return nil, fmt.Errorf("dial %s %s: connection refused", network, address)
	}
	here, there := net.Pipe()
	n.conn <- there
	return here, nil
}

func (n *node) Pod(context.Context, types.NamespacedName) (*corev1.Pod, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pod.DeepCopy(), n.readErr
}

func (n *node) Exec(ctx context.Context, _ types.NamespacedName, container string, command []string) error {
	n.mu.Lock()
	n.done = append(n.done, container+": "+strings.Join(command, " "))
	exec := n.exec
	n.mu.Unlock()
	return exec(ctx, container, command)
}

func (n *node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *node) did() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.done)
}

func (n *node) jobs(pool *v1alpha1.SandboxPoolSpec) []Job {
	n.mu.Lock()
	defer n.mu.Unlock()
	job, ok := JobOf(n.pod, pool)
	if !ok {
		return nil
	}
	return []Job{job}
}

// lead runs a Runner in a bubble, and ends it with the test.
func (n *node) lead() (*Runner, context.CancelFunc) {
	r, err := New(Options{
		Pods: n, Exec: n, Guard: n, Dial: n.dial, Log: logr.Discard(),
		Held: func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.held },
	})
	must.Succeed(n.t, err)
	r.OnChange(func(types.NamespacedName) { n.mu.Lock(); n.news++; n.mu.Unlock() })
	ctx, cancel := context.WithCancel(n.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Start(ctx) }()
	synctest.Wait()
	return r, func() { cancel(); <-ended }
}

// bubble runs a test with the Pod's server in it.
func bubble(t *testing.T, hooks string, test func(n *node, r *Runner)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, hooks)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			n.change(func() { n.done = append(n.done, fmt.Sprintf("%s %s %s %q", r.Method, r.Host, r.URL, body)) })
			n.mu.Lock()
			serve := n.serve
			n.mu.Unlock()
			serve(w, r)
		})}
		served := make(chan struct{})
		go func() { defer close(served); _ = server.Serve(n) }()
		r, stop := n.lead()
		test(n, r)
		stop()
		close(n.conn)
		<-served
		_ = server.Close()
	})
}

func state(n *node, r *Runner) State {
	return r.Follow(poolName, n.jobs(&v1alpha1.SandboxPoolSpec{}))[n.pod.UID]
}

// remembered returns the number of jobs.
func remembered(r *Runner) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, jobs := range r.jobs {
		n += len(jobs)
	}
	return n
}

func begin(n *node, r *Runner) {
	for _, job := range n.jobs(&v1alpha1.SandboxPoolSpec{}) {
		r.Begin(job)
	}
}

const three = `[{"exec":{"command":["one"]}},{"http":{"port":80,"path":"/init?token=hunter2","body":"hunter2"}},` +
	`{"exec":{"command":["three"],"container":"side"}}]`

func TestHooksRunInTheirOrderAndOnce(t *testing.T) {
	bubble(t, three, func(n *node, r *Runner) {
		if s := state(n, r); s.Status != Due {
			t.Errorf("before: %v", s)
		}
		begin(n, r)
		begin(n, r)
		synctest.Wait()
		if s := state(n, r); s.Status != Done || n.news != 1 {
			t.Errorf("after: %v, told %d times", s, n.news)
		}
		begin(n, r)
		synctest.Wait()
		want := []string{"main: one", `POST 10.0.0.7:80 /init?token=hunter2 "hunter2"`, "side: three"}
		if got := n.did(); !slices.Equal(got, want) {
			t.Errorf("did %q, want %q", got, want)
		}
		n.change(func() {
			n.pod.Labels[v1alpha1.SandboxPhaseLabelKey] = "running"
			n.pod.Annotations[v1alpha1.SandboxStartedAtAnnotationKey] = "2026-03-01T12:00:00Z"
		})
		if state(n, r); remembered(r) != 0 {
			t.Errorf("%d jobs are remembered", remembered(r))
		}
	})
}

func TestAHookIsRetriedAndThenHasFailed(t *testing.T) {
	bubble(t, `[{"name":"env","http":{"port":80,"path":"/a?hunter2","headers":{"X":"hunter2"}},"retries":2},{"exec":{"command":["never"]}}]`,
		func(n *node, r *Runner) {
			n.serve = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "hunter2", http.StatusServiceUnavailable) }
			begin(n, r)
			synctest.Wait()
			if s := state(n, r); s.Status != Working || !strings.Contains(s.Message, "failed 1 of 3 times: status 503") {
				t.Errorf("after the first try: %v", s)
			}
			time.Sleep(backoffMin)
			synctest.Wait()
			if got := n.did(); len(got) != 2 {
				t.Errorf("after the first back-off: %q", got)
			}
			time.Sleep(2 * backoffMin)
			synctest.Wait()
			if s := state(n, r); s != (State{Failed, `hook 0 (http, "env") failed 3 of 3 times: status 503`}) {
				t.Errorf("after the last try: %v", s)
			}
			if got := n.did(); len(got) != 3 || slices.Contains(got, "main: never") {
				t.Errorf("did %q", got)
			}
		})
}

func TestARetryThatSucceedsIsNoFailure(t *testing.T) {
	bubble(t, `[{"exec":{"command":["a"]}}]`, func(n *node, r *Runner) {
		tries := 0
		n.exec = func(context.Context, string, []string) error {
			if tries++; tries < 4 {
				return errors.New("exit code 1")
			}
			return nil
		}
		begin(n, r)
		time.Sleep(time.Minute)
		if s := state(n, r); s.Status != Done || tries != 4 {
			t.Errorf("%v after %d tries", s, tries)
		}
	})
}

func TestATryEndsByItsTimeout(t *testing.T) {
	bubble(t, `[{"exec":{"command":["a"]},"timeout":"3s","retries":0}]`, func(n *node, r *Runner) {
		n.exec = func(ctx context.Context, _ string, _ []string) error { <-ctx.Done(); return ctx.Err() }
		begin(n, r)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s := state(n, r); s.Status != Failed || !strings.HasSuffix(s.Message, "no success within 3s") {
			t.Errorf("%v", s)
		}
	})
}

// I13: a late try finds another tenant's Pod, and leaves it alone.
func TestI13ALateHookLeavesTheNextTenantAlone(t *testing.T) {
	for name, change := range map[string]func(n *node){
		"another sandbox":   func(n *node) { n.pod.Labels[v1alpha1.SandboxIDLabelKey] = "s2" },
		"another container": func(n *node) { n.pod.Status.ContainerStatuses[0].ContainerID = "c2" },
		"another Pod":       func(n *node) { n.pod.UID = "u2" },
		"released": func(n *node) {
			n.pod.Labels[v1alpha1.SandboxPhaseLabelKey] = "stopping"
			n.pod.Annotations[v1alpha1.SandboxTerminatedAtAnnotationKey] = "2026-03-01T12:00:00Z"
		},
		"idle again": func(n *node) {
			n.pod.Labels[v1alpha1.SandboxPhaseLabelKey] = "idle"
			delete(n.pod.Labels, v1alpha1.SandboxIDLabelKey)
		},
		"being deleted": func(n *node) { n.pod.DeletionTimestamp = &metav1.Time{} },
		"gone":          func(n *node) { n.readErr = apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p-1") },
	} {
		bubble(t, `[{"exec":{"command":["a"]}}]`, func(n *node, r *Runner) {
			n.exec = func(context.Context, string, []string) error { return errors.New("not yet") }
			begin(n, r)
			synctest.Wait()
			n.change(func() { change(n) })
			time.Sleep(time.Minute)
			if got := n.did(); len(got) != 1 || remembered(r) != 0 {
				t.Errorf("%s: did %q, %d jobs are remembered", name, got, remembered(r))
			}
		})
	}
}

func TestNothingIsTriedInDoubt(t *testing.T) {
	bubble(t, `[{"exec":{"command":["a"]},"retries":0}]`, func(n *node, r *Runner) {
		n.readErr = apierrors.NewServiceUnavailable("away")
		begin(n, r)
		time.Sleep(10 * time.Second)
		if s := state(n, r); s.Status != Working || len(n.did()) != 0 {
			t.Errorf("with the API server away: %v, did %q", s, n.did())
		}
		n.change(func() { n.readErr, n.held = nil, false })
		time.Sleep(10 * time.Second)
		if s := state(n, r); s.Status != Working || len(n.did()) != 0 {
			t.Errorf("without the lease: %v, did %q", s, n.did())
		}
		n.change(func() { n.held = true })
		time.Sleep(10 * time.Second)
		if s := state(n, r); s.Status != Done || len(n.did()) != 1 {
			t.Errorf("in the end: %v, did %q", s, n.did())
		}
	})
}

// A container that replaced the first one has not had its hooks.
func TestAnotherContainerBeginsAnew(t *testing.T) {
	bubble(t, `[{"exec":{"command":["a"]}}]`, func(n *node, r *Runner) {
		begin(n, r)
		synctest.Wait()
		n.change(func() { n.pod.Status.ContainerStatuses[0].ContainerID = "c2" })
		if s := state(n, r); s.Status != Due {
			t.Errorf("%v", s)
		}
		begin(n, r)
		synctest.Wait()
		if s := state(n, r); s.Status != Done || len(n.did()) != 2 {
			t.Errorf("%v, did %q", s, n.did())
		}
	})
}

func TestALeaderThatEndsTakesItsJobsAlong(t *testing.T) {
	bubble(t, `[{"exec":{"command":["a"]}}]`, func(n *node, r *Runner) {
		n.exec = func(ctx context.Context, _ string, _ []string) error { <-ctx.Done(); return ctx.Err() }
		old, stop := n.lead()
		begin(n, old)
		synctest.Wait()
		stop()
		begin(n, old)
		n.change(func() { n.exec = func(context.Context, string, []string) error { return nil } })
		if s := state(n, r); s.Status != Due {
			t.Errorf("for the next leader: %v", s)
		}
		begin(n, r)
		synctest.Wait()
		if s := state(n, r); s.Status != Done || len(n.did()) != 2 || remembered(old) != 0 {
			t.Errorf("%v, did %q", s, n.did())
		}
	})
}

// A request goes to the Pod's own address, and to no other, whatever the request or the environment says.
func TestARequestGoesNowhereElse(t *testing.T) {
	for name, tc := range map[string]struct {
		hook   string
		change func(n *node)
		want   string
		dialed string
	}{
		"a redirect": {`[{"http":{"port":80},"retries":0}]`, func(n *node) {
			n.serve = func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
			}
		}, "status 302", "10.0.0.7:80"},
		"a host": {`[{"http":{"port":80,"headers":{"Host":"169.254.169.254"}}}]`, func(*node) {}, "", "10.0.0.7:80"},
		"the node's network": {`[{"http":{"port":80}}]`, func(n *node) {
			n.pod.Spec.HostNetwork = true
		}, "the Pod is on its node's network", ""},
		"no address":   {`[{"http":{"port":80},"retries":0}]`, func(n *node) { n.pod.Status.PodIP = "" }, `address is ""`, ""},
		"the loopback": {`[{"http":{"port":80},"retries":0}]`, func(n *node) { n.pod.Status.PodIP = "127.0.0.1" }, "address is", ""},
		"link-local":   {`[{"http":{"port":80},"retries":0}]`, func(n *node) { n.pod.Status.PodIP = "169.254.169.254" }, "address is", ""},
		"no listener":  {`[{"http":{"port":81,"path":"/?hunter2"},"retries":0}]`, func(*node) {}, "connection refused", "10.0.0.7:81"},
	} {
		bubble(t, tc.hook, func(n *node, r *Runner) {
			tc.change(n)
			begin(n, r)
			time.Sleep(time.Minute)
			s := state(n, r)
			if (tc.want == "") != (s.Status == Done) || !strings.Contains(s.Message, tc.want) || strings.Contains(s.Message, "hunter2") {
				t.Errorf("%s: %v, want %q", name, s, tc.want)
			}
			if got := strings.Join(n.dialed, " "); got != tc.dialed {
				t.Errorf("%s: connected to %q, want %q", name, got, tc.dialed)
			}
		})
	}
}

// I13: a command stays noted until its outcome is known, and none is sent for a sandbox that is about to end.
func TestI13ACommandIsNotedUntilItsEndIsKnown(t *testing.T) {
	for name, tc := range map[string]struct {
		hook string
		exec func(ctx context.Context, n *node) error
		want int
	}{
		"it ends": {`[{"exec":{"command":["a"]}}]`, func(context.Context, *node) error { return nil }, 0},
		"it fails": {`[{"exec":{"command":["a"]},"retries":1}]`,
			func(context.Context, *node) error { return errors.New("exit code 3") }, 0},
		"no word of it": {`[{"exec":{"command":["a"]},"retries":0}]`,
			func(context.Context, *node) error { return fmt.Errorf("%w: EOF", errOutcomeUnknown) }, 1},
		"its time is up": {`[{"exec":{"command":["a"]},"retries":1,"timeout":"1s"}]`,
			func(ctx context.Context, _ *node) error { <-ctx.Done(); return ctx.Err() }, 2},
		"noted before it": {`[{"exec":{"command":["a"]},"retries":0}]`,
			func(_ context.Context, n *node) error { return fmt.Errorf("%d", n.executing()) }, 0},
	} {
		bubble(t, tc.hook, func(n *node, r *Runner) {
			n.exec = func(ctx context.Context, _ string, _ []string) error { return tc.exec(ctx, n) }
			begin(n, r)
			time.Sleep(time.Minute)
			if got := n.executing(); got != tc.want {
				t.Errorf("%s: %d commands may be carried out yet, want %d", name, got, tc.want)
			}
			if s := state(n, r); name == "noted before it" && !strings.HasSuffix(s.Message, ": 1") {
				t.Errorf("while it runs: %v", s)
			}
		})
	}
	bubble(t, `[{"exec":{"command":["a"]},"retries":0}]`, func(n *node, r *Runner) {
		n.guard.open = false
		begin(n, r)
		time.Sleep(time.Minute)
		if s := state(n, r); s.Status != Working || len(n.did()) != 0 {
			t.Errorf("for a sandbox that is about to end: %v, did %q", s, n.did())
		}
		n.change(func() { n.guard.open = true })
		time.Sleep(backoffMax)
		synctest.Wait()
		if s := state(n, r); s.Status != Done || len(n.did()) != 1 {
			t.Errorf("when it goes on after all: %v, did %q", s, n.did())
		}
	})
}

func TestMessagesHoldNoSecret(t *testing.T) {
	bubble(t, `[{"exec":{"command":["login","--password","hunter2 & co"]},"retries":0}]`, func(n *node, r *Runner) {
		n.exec = func(context.Context, string, []string) error {
			return fmt.Errorf(`Get "https://10.0.0.1/exec?command=login&command=hunter2+%%26+co": no route; ran "login" "hunter2 & co" %s`,
				strings.Repeat("x", 5000))
		}
		begin(n, r)
		synctest.Wait()
		if s := state(n, r); s.Status != Failed || strings.Contains(s.Message, "hunter2") || len(s.Message) > 400 {
			t.Errorf("%v", s)
		}
	})
}

// What a kubelet does not check is checked before the hooks, for as long as it takes.
func TestChecksComeBeforeHooks(t *testing.T) {
	pool := &v1alpha1.SandboxPoolSpec{}
	pool.IdleImage = "pause:1"
	pool.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "app:1"}}
	pool.Runtimes = []v1alpha1.SandboxRuntimeSpec{{Name: "e2b", Port: new(int32(80)), ReadinessProbe: &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ok", Port: intstr.FromInt32(80)}},
	}}}
	bubble(t, `[{"exec":{"command":["a"]}}]`, func(n *node, r *Runner) {
		n.serve = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
		jobs := n.jobs(pool)
		r.Begin(jobs[0])
		time.Sleep(time.Minute)
		if s := r.Follow(poolName, jobs)[n.pod.UID]; s != (State{Working, `readiness of runtime "e2b": status 500`}) || n.news != 1 {
			t.Errorf("%v, told %d times", s, n.news)
		}
		n.change(func() { n.serve = func(http.ResponseWriter, *http.Request) {} })
		time.Sleep(checkEvery)
		synctest.Wait()
		did := n.did()
		if s := r.Follow(poolName, jobs)[n.pod.UID]; s.Status != Done || did[len(did)-1] != "main: a" ||
			did[len(did)-2] != `GET 10.0.0.7:80 /ok ""` {
			t.Errorf("%v, did %q", s, did[len(did)-2:])
		}
	})
}

func TestHooksThatCannotBeReadFailTheSandbox(t *testing.T) {
	bubble(t, `[{"exec":`, func(n *node, r *Runner) {
		begin(n, r)
		synctest.Wait()
		if s := state(n, r); s.Status != Failed || !strings.Contains(s.Message, "cannot be read") {
			t.Errorf("%v", s)
		}
	})
}
