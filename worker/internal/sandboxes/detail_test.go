// SPDX-License-Identifier: Apache-2.0

package sandboxes_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/claim/claimtest"
	"navix.sh/atoll/worker/internal/hooks"
)

// stuck never completes any hook.
type stuck struct{}

func (stuck) Follow(_ types.NamespacedName, jobs []hooks.Job) map[types.UID]hooks.State {
	states := map[types.UID]hooks.State{}
	for _, j := range jobs {
		states[j.UID] = hooks.State{Status: hooks.Working}
	}
	return states
}
func (stuck) Begin(hooks.Job)                     {}
func (stuck) OnChange(func(types.NamespacedName)) {}

func withHook(c *claim.Claim) {
	hook, err := structpb.NewStruct(map[string]any{"exec": map[string]any{"command": []any{"init", "hunter2"}}})
	if err != nil {
		panic(err)
	}
	c.Request.PostStartHooks = []*structpb.Struct{hook}
}

func startsWithin2s(c *claim.Claim) { c.Request.StartupTimeout = durationpb.New(2 * time.Second) }

func assigned(c *claim.Claim) { c.Request.Wait = sandboxv1.CreateSandboxRequest_ASSIGNED }

func warn(w *claimtest.World, pod *corev1.Pod, kind, reason, message string, at time.Time) {
	w.T.Helper()
	w.Must(w.Live.Create(w.T.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: w.Namespace, GenerateName: "e-"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: w.Namespace, Name: pod.Name, UID: pod.UID},
		Type:           kind, Reason: reason, Message: message, Count: 2, FirstTimestamp: metav1.NewTime(at), LastTimestamp: metav1.NewTime(at),
	}))
}

// Get shows what a sandbox waits for, with the Warning events of its Pod since it is this sandbox's.
func TestGetTellsWhyASandboxDoesNotRun(t *testing.T) {
	t.Parallel()
	w := claimtest.NewWorld(t, stuck{})
	l := w.Start(1)
	pod := w.Pods()[0]
	warn(w, &pod, "Warning", "Failed", "could not pull registry.example/another-tenant:1", time.Now())
	w.Eventually("a second that is not the event's", func() error {
		events := &corev1.EventList{}
		w.Must(w.Live.List(t.Context(), events))
		for _, e := range events.Items {
			if e.InvolvedObject.UID == pod.UID && time.Since(e.CreationTimestamp.Time) < 2*time.Second {
				return errors.New("not yet")
			}
		}
		return nil
	})
	got := l.MustCreate(withHook, assigned)
	l.Until(got.GetId(), "the sandbox to wait for its hooks", func(got *sandboxv1.Sandbox) bool {
		return got.GetPhase() == sandboxv1.Phase_STARTING && got.GetStatusDetail().GetReason() == "PostStartHooks"
	})
	now := time.Now()
	warn(w, &pod, "Normal", "Pulled", "fine", now)
	for i := range 12 {
		if i == 3 {
			few, err := l.Get(t.Context(), got.GetId())
			w.Must(err)
			if n := len(few.GetStatusDetail().GetEvents()); n != 3 {
				t.Errorf("told of %d events, 3 are warnings about this sandbox: %v", n, few.GetStatusDetail())
			}
		}
		warn(w, &pod, "Warning", "Unhealthy", fmt.Sprintf("%d %s", i, strings.Repeat("é", 1000)), now.Add(time.Duration(i)*time.Second))
	}
	record, err := l.Get(t.Context(), got.GetId())
	w.Must(err)
	events := record.GetStatusDetail().GetEvents()
	if len(events) != 10 {
		t.Fatalf("%d events: %v", len(events), events)
	}
	for i, e := range events {
		if e.GetReason() != "Unhealthy" || !strings.HasPrefix(e.GetMessage(), fmt.Sprintf("%d ", 11-i)) || e.GetCount() != 2 ||
			len(e.GetMessage()) > 600 {
			t.Errorf("event %d: %v", i, e)
		}
	}
	page, err := l.List(t.Context(), &sandboxv1.ListSandboxesRequest{Namespace: w.Namespace})
	w.Must(err)
	if d := page.GetSandboxes()[0].GetStatusDetail(); d.GetReason() != "PostStartHooks" || d.GetEvents() != nil {
		t.Errorf("listed with %v", d)
	}
}

func TestGetDoesNotDependOnEvents(t *testing.T) {
	l := claimtest.NewWorld(t, stuck{}).Start(1, claimtest.Via(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/events") {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		return next.RoundTrip(r)
	}))
	got := l.MustCreate(withHook, assigned)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	record, err := l.Get(ctx, got.GetId())
	if err != nil || record.GetStatusDetail() == nil || ctx.Err() != nil {
		t.Errorf("with events that do not come: %v, %v", record, err)
	}
}

// A claim with hooks returns when they are done, not when its Pod is ready, and so does its key.
func TestAClaimWaitsForItsHooks(t *testing.T) {
	t.Parallel()
	l := claimtest.NewWorld(t, stuck{}).Start(2)
	_, err := l.TryCreate(withHook, startsWithin2s)
	if problem.FromError(err).Reason != problem.Deadline {
		t.Errorf("answered: %v", err)
	}
	held := l.MustCreate(claimtest.Keyed("k", 1), withHook, assigned)
	if again := l.MustCreate(claimtest.Keyed("k", 1), withHook, assigned); again.GetId() != held.GetId() {
		t.Errorf("the same claim got %s, then %s", held.GetId(), again.GetId())
	}
	if _, err := l.TryCreate(claimtest.Keyed("k", 1), assigned); problem.FromError(err).Reason != problem.ClaimKeyConflict {
		t.Errorf("the same key without hooks: %v", err)
	}
	_, err = l.TryCreate(func(c *claim.Claim) { c.Request.PostStartHooks = []*structpb.Struct{{}} })
	if e := problem.FromError(err); e.Reason != problem.Invalid || e.Fields[0].Field != "postStartHooks[0]" {
		t.Errorf("an empty hook: %v", err)
	}
}
