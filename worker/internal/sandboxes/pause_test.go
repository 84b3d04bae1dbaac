// SPDX-License-Identifier: Apache-2.0

package sandboxes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/claim/claimtest"
	"navix.sh/atoll/worker/internal/pause"
)

// withCPU gives the pool's containers CPU that a pause can free.
func withCPU(request, limit string) func(*v1alpha1.SandboxPool) {
	return func(p *v1alpha1.SandboxPool) {
		r := &p.Spec.Template.Spec.Containers[0].Resources
		r.Requests, r.Limits = corev1.ResourceList{}, corev1.ResourceList{}
		if request != "" {
			r.Requests[corev1.ResourceCPU] = resource.MustParse(request)
		}
		if limit != "" {
			r.Limits[corev1.ResourceCPU] = resource.MustParse(limit)
		}
	}
}

// cpu is what the kubelet reports: request/limit of the first container.
func cpu(pod *corev1.Pod) string {
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].Resources == nil {
		return "none"
	}
	r := pod.Status.ContainerStatuses[0].Resources
	return r.Requests.Cpu().String() + "/" + r.Limits.Cpu().String()
}

func annotate(w *claimtest.World, pod, key, value string) {
	w.T.Helper()
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: pod}}
	w.Must(w.Live.Patch(w.T.Context(), target, client.RawPatch(types.StrategicMergePatchType, []byte(body))))
}

func reasonOf(err error) problem.Reason {
	if err == nil {
		return ""
	}
	return problem.FromError(err).Reason
}

// is returns a condition for Until: a state of a pause and its reason.
func is(state sandboxv1.Pause_State, reason string) func(*sandboxv1.Sandbox) bool {
	return func(got *sandboxv1.Sandbox) bool {
		return got.GetPause().GetState() == state && got.GetPause().GetReason() == reason
	}
}

var isPaused = is(sandboxv1.Pause_PAUSED, "")

// quiet expects the sandbox to have all of its CPU, and no transition to be under way.
func quiet(l *claimtest.Worker, id, want string) {
	l.W.T.Helper()
	l.W.Eventually("all of its CPU", func() error {
		got, err := l.Get(l.W.T.Context(), id)
		if err != nil {
			return err
		}
		pod := l.W.Pod(got.GetPod())
		return wait.If(got.GetPause() == nil && !pause.Marked(pod) && cpu(pod) == want && l.InFlight() == 0,
			fmt.Sprintf("pause %v, %s, annotations %v, %d in flight", got.GetPause(), cpu(pod), pod.Annotations, l.InFlight()))
	})
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	w, l := claimtest.Start(t, 1, withCPU("250m", "500m"))
	sb := l.MustCreate(claimtest.Keyed("k", 1))
	before := w.Pod(sb.GetPod())

	paused, err := l.Pause(t.Context(), sb.GetId())
	w.Must(err)
	if p := paused.GetPause(); paused.GetPhase() != sandboxv1.Phase_RUNNING || p.GetState() != sandboxv1.Pause_PAUSED || p.GetReason() != "" ||
		p.GetSince() == nil {
		t.Errorf("paused: %v", paused)
	}
	pod := w.Pod(sb.GetPod())
	if got := cpu(pod); got != "1m/10m" || pod.UID != before.UID ||
		pod.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the Pod has %s", got)
	}
	generation := pod.Generation
	if again, err := l.Pause(t.Context(), sb.GetId()); err != nil || !isPaused(again) {
		t.Errorf("paused again: %v, %v", again, err)
	}
	if got := w.Pod(sb.GetPod()); got.ResourceVersion != pod.ResourceVersion || got.Generation != generation {
		t.Error("pausing again wrote something")
	}
	if held, err := l.TryCreate(claimtest.Keyed("k", 1)); err != nil || held.GetId() != sb.GetId() ||
		held.GetPause().GetState() != sandboxv1.Pause_PAUSED {
		t.Errorf("its key answers %v, %v", held, err)
	}
	resumed, err := l.Resume(t.Context(), sb.GetId())
	if err != nil || resumed.GetPause() != nil || resumed.GetLastActiveAt() == nil {
		t.Errorf("resumed: %v, %v", resumed, err)
	}
	quiet(l, sb.GetId(), "250m/500m")
	version := w.Pod(sb.GetPod()).ResourceVersion
	if again, err := l.Resume(t.Context(), sb.GetId()); err != nil || again.GetPause() != nil ||
		w.Pod(sb.GetPod()).ResourceVersion != version {
		t.Errorf("resumed again: %v, %v, or something was written", again, err)
	}

	l.MustRelease(sb.GetId())
	l.Until(sb.GetId(), "its end", claimtest.Ended)
	if got, err := l.Pause(t.Context(), sb.GetId()); err != nil || !claimtest.Ended(got) || got.GetPause() != nil {
		t.Errorf("an ended sandbox is paused: %v, %v", got, err)
	}
	if _, err := l.Pause(t.Context(), "none-"+claimtest.ClusterID); reasonOf(err) != problem.NotFound {
		t.Errorf("a sandbox that is not there: %v", err)
	}
}

// Where a Pod or its node cannot be paused, the error says so, and nothing of the attempt stays.
func TestCannotBePaused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*v1alpha1.SandboxPool)
		hold   string
		want   string
	}{
		"no CPU": {func(*v1alpha1.SandboxPool) {}, "", "NothingToFree"},
		"would restart": {func(p *v1alpha1.SandboxPool) {
			p.Spec.Template.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU,
				RestartPolicy: corev1.RestartContainer}}
		}, "", "WouldRestart"},
		"liveness": {func(p *v1alpha1.SandboxPool) {
			probe := corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}
			p.Spec.Template.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: probe}
		}, "", "LivenessProbe"},
		"node": {func(p *v1alpha1.SandboxPool) { p.Spec.Template.Spec.Containers[0].Image = "test.local/no-resize:1" }, "",
			"without support for resize"},
		"infeasible": {func(*v1alpha1.SandboxPool) {}, "Infeasible:static CPU manager", "static CPU manager"},
	} {
		t.Run(name, func(t *testing.T) {
			w, l := claimtest.Start(t, 1, func(p *v1alpha1.SandboxPool) {
				if name != "no CPU" {
					withCPU("500m", "500m")(p)
				}
				tt.change(p)
			})
			sb := l.MustCreate()
			has := cpu(w.Pod(sb.GetPod()))
			if tt.hold != "" {
				annotate(w, sb.GetPod(), plane.ResizeAnnotation, tt.hold)
			}
			_, err := l.Pause(t.Context(), sb.GetId())
			if reasonOf(err) != problem.Unimplemented || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want UNIMPLEMENTED with %q", err, tt.want)
			}
			quiet(l, sb.GetId(), has)
		})
	}
}

func TestPauseOfAStartingSandbox(t *testing.T) {
	_, l := claimtest.Start(t, 1, withCPU("1", "1"))
	sb := l.MustCreate(claimtest.Image("test.local/fail-pull:1"), assigned)
	if _, err := l.Pause(t.Context(), sb.GetId()); reasonOf(err) != problem.Unavailable || !strings.Contains(err.Error(), "starting") {
		t.Errorf("%v, want UNAVAILABLE", err)
	}
}

// A node without room reports that at once, the opposite can be requested, and the request completes when there is room.
func TestResumeThatIsDeferred(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"Deferred", "Infeasible"} {
		t.Run(reason, func(t *testing.T) {
			w, l := claimtest.Start(t, 1, withCPU("2", "2"))
			sb := l.MustCreate()
			_, err := l.Pause(t.Context(), sb.GetId())
			w.Must(err)
			annotate(w, sb.GetPod(), plane.ResizeAnnotation, reason+":no room")
			got, err := l.Resume(t.Context(), sb.GetId())
			w.Must(err)
			if p := got.GetPause(); p.GetState() != sandboxv1.Pause_RESUMING || p.GetReason() != reason || p.GetMessage() != "no room" {
				t.Errorf("resumed without room: %v", p)
			}
			got, err = l.Pause(t.Context(), sb.GetId())
			if err != nil || !isPaused(got) {
				t.Errorf("paused instead: %v, %v", got, err)
			}
			_, err = l.Resume(t.Context(), sb.GetId())
			w.Must(err)
			annotate(w, sb.GetPod(), plane.ResizeAnnotation, "")
			quiet(l, sb.GetId(), "2/2")
		})
	}
}

// A quota that was used up meanwhile keeps a sandbox paused, and the caller gets the reason.
func TestResumeThatAQuotaRefuses(t *testing.T) {
	t.Parallel()
	w, l := claimtest.Start(t, 1, withCPU("1", "1"))
	sb := l.MustCreate()
	_, err := l.Pause(t.Context(), sb.GetId())
	w.Must(err)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "cpu"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("100m")}
	w.Must(w.Live.Create(t.Context(), quota))
	w.Eventually("the quota to count", func() error {
		w.Must(w.Live.Get(t.Context(), w.Key("cpu"), quota))
		return wait.If(len(quota.Status.Hard) != 0, "not yet")
	})
	w.Eventually("a refusal", func() error { // admission learns of a quota a moment later
		_, err := l.Resume(t.Context(), sb.GetId())
		if reasonOf(err) != problem.NoCapacity || !strings.Contains(err.Error(), "exceeded quota") {
			_, again := l.Pause(t.Context(), sb.GetId())
			return fmt.Errorf("%w, want NO_CAPACITY (%w)", err, again)
		}
		return nil
	})
	if got, err := l.Get(t.Context(), sb.GetId()); err != nil || !isPaused(got) {
		t.Errorf("it is %v, %v, want paused", got.GetPause(), err)
	}
	w.Must(w.Live.Delete(t.Context(), quota))
	w.Eventually("a resume", func() error {
		_, err := l.Resume(t.Context(), sb.GetId())
		return err
	})
	quiet(l, sb.GetId(), "1/1")
}

// Of two calls with opposite targets one is refused; two calls with the same target both succeed.
func TestPauseAndResumeAtOnce(t *testing.T) {
	t.Parallel()
	w, l := claimtest.Start(t, 1, withCPU("1", "1"))
	sb := l.MustCreate()
	annotate(w, sb.GetPod(), plane.ResizeAnnotation, "Deferred:later") // so that the pause takes as long as this test wants
	var pauses sync.WaitGroup
	for range 3 {
		pauses.Go(func() {
			if got, err := l.Pause(t.Context(), sb.GetId()); err != nil || !isPaused(got) {
				t.Errorf("pause: %v, %v", got.GetPause(), err)
			}
		})
	}
	l.Until(sb.GetId(), "a pause that is deferred", is(sandboxv1.Pause_PAUSING, "Deferred"))
	if _, err := l.Resume(t.Context(), sb.GetId()); reasonOf(err) != problem.Unavailable ||
		!strings.Contains(err.Error(), "Pause is under way") {
		t.Errorf("resume meanwhile: %v, want UNAVAILABLE", err)
	}
	annotate(w, sb.GetPod(), plane.ResizeAnnotation, "")
	pauses.Wait()
	_, err := l.Resume(t.Context(), sb.GetId())
	w.Must(err)
	quiet(l, sb.GetId(), "1/1")
}

// A new leader completes what another leader has half written, a pause or a resume.
func TestANewLeaderGoesOnWithAPause(t *testing.T) {
	t.Parallel()
	w, l := claimtest.Start(t, 1, withCPU("1", "1"))
	sb := l.MustCreate()
	half := func(target pause.Target) *claimtest.Worker {
		t.Helper()
		// A leader that dies after its first write leaves this.
		one := resource.MustParse("1")
		value, err := (&pause.Intent{Target: target, Containers: map[string]pause.CPU{"main": {Request: &one, Limit: &one}}}).Encode()
		w.Must(err)
		l.Blind()
		l.Stop()
		annotate(w, sb.GetPod(), v1alpha1.SandboxPauseAnnotationKey, value)
		l = w.Lead(2)
		return l
	}
	half(pause.Paused)
	l.Until(sb.GetId(), "the pause", isPaused)
	if got := cpu(w.Pod(sb.GetPod())); got != "10m/10m" {
		t.Errorf("it has %s", got)
	}
	half(pause.Running)
	quiet(l, sb.GetId(), "1/1")
}

// I13: a Pod whose CPU was taken is not handed to the next tenant, whether or not it could be reset otherwise.
func TestI13APausedPodIsReplaced(t *testing.T) {
	t.Parallel()
	w, l := claimtest.Start(t, 1, withCPU("1", "1"))
	for _, paused := range []bool{false, true} {
		sb := l.MustCreate(claimtest.Image(claimtest.TenantImage))
		if paused {
			_, err := l.Pause(t.Context(), sb.GetId())
			w.Must(err)
		}
		l.MustRelease(sb.GetId())
		w.Eventually("one idle Pod", func() error {
			pods := w.Pods()
			return wait.If(len(pods) == 1 && pods[0].Labels[v1alpha1.SandboxPhaseLabelKey] == v1alpha1.SandboxPhaseIdle,
				fmt.Sprintf("%d Pods, the first %s", len(pods), pods[0].Labels[v1alpha1.SandboxPhaseLabelKey]))
		})
		l.AwaitIdle(1)
		if pods := w.Pods(); (string(pods[0].UID) == sb.GetPodUid()) == paused || cpu(&pods[0]) != "1/1" {
			t.Errorf("paused %t: the Pod before was %s, now it is %s, with %s", paused, sb.GetPodUid(), pods[0].UID, cpu(&pods[0]))
		}
	}
}

// A paused sandbox does not end as idle, and when it has its CPU back its idle time starts again.
func TestAPausedSandboxIsNotIdle(t *testing.T) {
	t.Parallel()
	w, l := claimtest.Start(t, 1, withCPU("1", "1"))
	idle := 3 * time.Second
	sb := l.MustCreate(idleTimeout(idle))
	_, err := l.Pause(t.Context(), sb.GetId())
	w.Must(err)
	wait, cancel := context.WithTimeout(t.Context(), 2*idle)
	defer cancel()
	<-wait.Done() // nothing must happen, so there is no event to wait for
	if got, err := l.Get(t.Context(), sb.GetId()); err != nil || got.GetPhase() != sandboxv1.Phase_RUNNING {
		t.Fatalf("after twice its idle timeout it is %v, %v", got.GetPhase(), err)
	}
	resumed := time.Now()
	_, err = l.Resume(t.Context(), sb.GetId())
	w.Must(err)
	l.Until(sb.GetId(), "its end", func(got *sandboxv1.Sandbox) bool { return got.GetFailureReason() == "IdleTimeout" })
	if took := time.Since(resumed); took < idle {
		t.Errorf("it ended %s after it was resumed, want %s", took, idle)
	}
}

// handleResizes has handle respond to requests to resize a Pod; n is their number.
func handleResizes(
	handle func(n int32, req *http.Request, next http.RoundTripper) (*http.Response, error),
) func(*claimtest.Options, *rest.Config) {
	var n atomic.Int32
	return claimtest.Via(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !strings.HasSuffix(req.URL.Path, "/resize") {
			return next.RoundTrip(req)
		}
		return handle(n.Add(1), req, next)
	})
}

func statusResponse(req *http.Request, code int, reason metav1.StatusReason) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"says the test"}`, reason, code)
	return &http.Response{
		StatusCode: code, Request: req, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}
}

// The response of an API server before 1.33 to a subresource that it does not have.
func TestAnAPIServerWithoutResize(t *testing.T) {
	w := claimtest.NewWorld(t)
	w.MakePool(1, withCPU("1", "1"))
	l := w.Lead(1, handleResizes(func(_ int32, req *http.Request, _ http.RoundTripper) (*http.Response, error) {
		return statusResponse(req, http.StatusNotFound, metav1.StatusReasonNotFound), nil
	}))
	l.AwaitIdle(1)
	sb := l.MustCreate()
	if _, err := l.Pause(t.Context(), sb.GetId()); reasonOf(err) != problem.Unimplemented ||
		!strings.Contains(err.Error(), "does not resize Pods") {
		t.Errorf("%v, want UNIMPLEMENTED with the reason", err)
	}
	quiet(l, sb.GetId(), "1/1")
}

// An API server in trouble makes a pause take longer, at worst longer than the call waits; the pause completes all the same.
func TestPauseWhileTheAPIServerIsInTrouble(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fails   int32
		unheard bool
	}{"a few errors": {2, false}, "answers that get lost": {2, true}, "many errors": {12, false}} {
		t.Run(name, func(t *testing.T) {
			w := claimtest.NewWorld(t)
			w.MakePool(1, withCPU("1", "1"))
			l := w.Lead(1, handleResizes(func(n int32, req *http.Request, next http.RoundTripper) (*http.Response, error) {
				if n > tt.fails {
					return next.RoundTrip(req)
				}
				if tt.unheard {
					resp, err := next.RoundTrip(req)
					if err == nil {
						_ = resp.Body.Close()
					}
					return nil, errors.New("the connection broke")
				}
				return statusResponse(req, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
			}))
			l.AwaitIdle(1)
			sb := l.MustCreate()
			_, err := l.Pause(t.Context(), sb.GetId())
			if reason := reasonOf(err); reason != "" && (tt.fails < 12 || reason != problem.OutcomeUnknown) {
				t.Errorf("%v", err)
			}
			l.Until(sb.GetId(), "the pause", func(got *sandboxv1.Sandbox) bool { return isPaused(got) && l.InFlight() == 0 })
			if !l.Serving() {
				t.Error("it does not serve any more")
			}
		})
	}
}

// A leader that ends during a pause does not keep the next leader waiting, which completes it.
func TestLeadingEndsInTheMidstOfAPause(t *testing.T) {
	w, l := claimtest.Start(t, 1, withCPU("1", "1"))
	sb := l.MustCreate()
	annotate(w, sb.GetPod(), plane.ResizeAnnotation, "Deferred:later")
	ended := make(chan error, 1)
	go func() {
		_, err := l.Pause(context.WithoutCancel(t.Context()), sb.GetId())
		ended <- err
	}()
	l.Until(sb.GetId(), "a pause under way", is(sandboxv1.Pause_PAUSING, "Deferred"))
	began := time.Now()
	l.Stop()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("leading ended after %s", took)
	}
	if err := <-ended; reasonOf(err) != problem.OutcomeUnknown {
		t.Errorf("the caller that waited gets %v, want OUTCOME_UNKNOWN", err)
	}
	next := w.Lead(2)
	annotate(w, sb.GetPod(), plane.ResizeAnnotation, "")
	next.Until(sb.GetId(), "the pause", func(got *sandboxv1.Sandbox) bool { return isPaused(got) && next.InFlight() == 0 })
}
