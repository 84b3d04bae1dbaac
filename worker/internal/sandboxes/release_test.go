// SPDX-License-Identifier: Apache-2.0

package sandboxes_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/claim/claimtest"
)

// podWrites counts the writes on Pods of a worker's claim path, and calls before before each deletion.
type podWrites struct {
	patches, deletions atomic.Int32
	before             func(deletion int32) error
}

func (p *podWrites) trip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	switch r.Method {
	case http.MethodPatch:
		p.patches.Add(1)
	case http.MethodDelete:
		if n := p.deletions.Add(1); p.before != nil {
			if err := p.before(n); err != nil {
				return nil, err
			}
		}
	}
	return next.RoundTrip(r)
}

// A claim and its release are two writes on the Pod, and the record is durable before the caller is told.
func TestAReleaseIsOneWrite(t *testing.T) {
	writes := &podWrites{}
	l := claimtest.NewWorld(t).Start(1, claimtest.Via(writes.trip))
	one := l.MustCreate()
	got := l.MustRelease(one.GetId())
	if n := writes.patches.Load(); n != 1 {
		t.Errorf("%d patches of Pods, want the claim's alone", n)
	}
	if n := writes.deletions.Load(); n != 1 {
		t.Errorf("%d deletions of Pods, want 1", n)
	}
	if got.GetStopReason() != string(v1alpha1.SandboxStopReasonReleased) || got.GetTerminatedAt() == nil || !l.HasEnded(one.GetId()) {
		t.Errorf("the release returned %v, recorded %t", got, l.HasEnded(one.GetId()))
	}
	l.Until(one.GetId(), "the record", claimtest.Ended)
	record, err := l.Get(t.Context(), one.GetId())
	if err != nil || record.GetStopReason() != got.GetStopReason() ||
		!record.GetTerminatedAt().AsTime().Equal(got.GetTerminatedAt().AsTime()) ||
		record.GetContainerId() == "" || record.GetImage() != claimtest.PoolImage {
		t.Errorf("the record is %v, %v; the release returned %v", record, err, got)
	}
}

// Where this process does not record what ends, a release deletes no Pod: the end is written on it, for the process that does.
func TestAReleaseThatAnotherRecords(t *testing.T) {
	for name, tt := range map[string]struct {
		paused bool
		before func(*claimtest.Worker)
	}{
		"another controller keeps the pool": {paused: true, before: func(*claimtest.Worker) {}},
		"the worker is ending":              {before: func(l *claimtest.Worker) { l.StopRecording() }},
	} {
		t.Run(name, func(t *testing.T) {
			writes := &podWrites{}
			l := claimtest.NewWorld(t).Start(1, claimtest.Via(writes.trip), func(o *claimtest.Options, _ *rest.Config) {
				o.Sandboxes.Paused = func(*v1alpha1.SandboxPool) bool { return tt.paused }
			})
			one := l.MustCreate()
			tt.before(l)
			got := l.MustRelease(one.GetId())
			if n := writes.deletions.Load(); n != 0 || got.GetStopReason() != string(v1alpha1.SandboxStopReasonReleased) {
				t.Errorf("%d deletions; the release returned %v", n, got)
			}
		})
	}
}

// A Pod that has changed since it was seen is not deleted as it was seen.
func TestAReleaseLosesToAnotherWrite(t *testing.T) {
	w, writes := claimtest.NewWorld(t), &podWrites{}
	var one *sandboxv1.Sandbox
	writes.before = func(deletion int32) error {
		if deletion > 1 {
			return nil
		}
		pod := w.Pod(one.GetPod())
		pod.Annotations["example.com/note"] = "another writer"
		return w.Live.Update(t.Context(), pod)
	}
	l := w.Start(1, claimtest.Via(writes.trip))
	one = l.MustCreate()
	l.MustRelease(one.GetId())
	if n := writes.deletions.Load(); n != 2 {
		t.Errorf("%d deletions, want a second one of the Pod as it is now", n)
	}
	l.Until(one.GetId(), "the record", claimtest.Ended)
}

// A sandbox that was released while its record could not be kept, and while its worker ended, is recorded as released by the next one.
func TestTheNextLeaderKnowsWhyASandboxEnded(t *testing.T) {
	w, d := claimtest.NewWorld(t), newDisk()
	l := w.Start(1, on(t, d))
	one := l.MustCreate(claimtest.Keyed("k", 1))
	d.full.Store(true)
	l.MustRelease(one.GetId())
	l.Stop()
	l.Blind()
	next := w.Lead(2) // with a disk of its own
	next.Until(one.GetId(), "the record", claimtest.Ended)
	if got, err := next.Get(t.Context(), one.GetId()); err != nil || got.GetStopReason() != string(v1alpha1.SandboxStopReasonReleased) {
		t.Errorf("the record is %v, %v", got, err)
	}
}

// A deletion whose response is lost is repeated, and its sandbox recorded once, as released.
func TestAReleaseWhoseResponseIsLost(t *testing.T) {
	w, writes := claimtest.NewWorld(t), &podWrites{}
	var one *sandboxv1.Sandbox
	writes.before = func(deletion int32) error {
		if deletion > 1 {
			return nil
		}
		return errors.Join(w.Live.Delete(t.Context(), w.Pod(one.GetPod())), errors.New("connection reset by peer"))
	}
	l := w.Start(1, claimtest.Via(writes.trip))
	one = l.MustCreate()
	if got := l.MustRelease(one.GetId()); got.GetStopReason() != string(v1alpha1.SandboxStopReasonReleased) {
		t.Errorf("the release returned %v", got)
	}
	l.Until(one.GetId(), "the record", claimtest.Ended)
	if got, err := l.Get(t.Context(), one.GetId()); err != nil || got.GetStopReason() != string(v1alpha1.SandboxStopReasonReleased) {
		t.Errorf("the record is %v, %v", got, err)
	}
}
