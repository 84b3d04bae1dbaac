// SPDX-License-Identifier: Apache-2.0

package sandboxes_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/worker/internal/claim/claimtest"
	"navix.sh/atoll/worker/internal/history"
)

// disk outlives the histories that are opened on it.
type disk struct {
	store.Store
	full atomic.Bool
}

func newDisk() *disk { return &disk{Store: store.NewMemory()} }

func (d *disk) Close() error { return nil }

func (d *disk) Commit(ctx context.Context, txn store.Txn) (uint64, error) {
	if d.full.Load() {
		return 0, syscall.ENOSPC
	}
	return d.Store.Commit(ctx, txn)
}

// on makes a leader keep its history on a disk.
func on(t *testing.T, d *disk) func(*claimtest.Options, *rest.Config) {
	return func(o *claimtest.Options, _ *rest.Config) {
		h, err := history.Open(t.Context(), history.Options{Store: d, Time: clock.RealClock{}})
		must.Succeed(t, err)
		t.Cleanup(func() { _ = h.Close() })
		o.Sandboxes.History = h
	}
}

// The record of a sandbox without a key outlives the worker, and one that ended with a key still reaches the hub.
func TestRecordsOutliveTheWorker(t *testing.T) {
	w, d := claimtest.NewWorld(t), newDisk()
	l := w.Start(3, on(t, d))
	plain, withKey := l.MustCreate(), l.MustCreate(claimtest.Keyed("k", 1))
	for _, s := range []*sandboxv1.Sandbox{plain, withKey} {
		l.MustRelease(s.GetId())
		l.Until(s.GetId(), "its record", claimtest.Ended)
	}
	l.Stop()
	l.Blind()
	w.Eventually("the Pods to be gone", func() error {
		for _, s := range []*sandboxv1.Sandbox{plain, withKey} {
			pod := &corev1.Pod{}
			if err := w.Live.Get(t.Context(), w.Key(s.GetPod()), pod); !apierrors.IsNotFound(err) && pod.UID == "" {
				return err
			}
		}
		return nil
	})

	next := w.Lead(2, on(t, d))
	got, err := next.Get(t.Context(), plain.GetId())
	if err != nil || got.GetStopReason() != "Released" || got.GetPodUid() != plain.GetPodUid() ||
		got.GetImages()["main"] != claimtest.PoolImage {
		t.Errorf("after a restart the record is %v, %v", got, err)
	}
	if again := next.MustCreate(claimtest.Keyed("k", 1)); again.GetId() != withKey.GetId() || again.GetPhase() != sandboxv1.Phase_ENDED {
		t.Errorf("I2: after a restart the key answers %v, want the record of %s", again, withKey.GetId())
	}
	if _, err := next.TryCreate(claimtest.Keyed("k", 1),
		claimtest.Image("test.local/other:1")); problem.FromError(err).Reason != problem.ClaimKeyConflict {
		t.Errorf("other parameters: %v", err)
	}
	if got, err := next.Lookup(t.Context(), w.KeyHash("k"), 1); err != nil || got.GetId() != withKey.GetId() {
		t.Errorf("lookup: %v, %v", got, err)
	}
	if got, err := next.Cancel(t.Context(), w.KeyHash("k"), 1); err != nil || got.GetStopReason() != "Released" {
		t.Errorf("cancel: %v, %v", got, err)
	}
	if _, records := next.TakeEnded(10); len(records) != 1 || records[0].GetSandbox().GetId() != withKey.GetId() {
		t.Errorf("for the hub there are %v", records)
	}
}

// While the disk of the history is full, Pods wait with their finalizer and their sandbox's identity, and sandboxes are handed
// out as before. When there is room again everything is recorded once and no Pod is left.
func TestAFullDiskLosesNoRecordAndLeaksNoPod(t *testing.T) {
	w, d := claimtest.NewWorld(t), newDisk()
	l := w.Start(4, on(t, d))
	sandboxes := []*sandboxv1.Sandbox{l.MustCreate(), l.MustCreate(claimtest.Keyed("k", 1)), l.MustCreate()}
	d.full.Store(true)
	for _, s := range sandboxes[:2] {
		l.MustRelease(s.GetId())
	}
	w.Must(w.Live.Delete(t.Context(), w.Pod(sandboxes[2].GetPod())))
	w.Eventually("the Pods to have stopped", func() error {
		for _, s := range sandboxes {
			if p := w.Pod(s.GetPod()); p.DeletionTimestamp == nil || p.Status.Phase == corev1.PodRunning {
				return fmt.Errorf("%s has not", p.Name)
			}
		}
		return nil
	})
	during := l.MustCreate()
	for _, s := range sandboxes {
		p := w.Pod(s.GetPod())
		if !slices.Contains(p.Finalizers, v1alpha1.SandboxProtectionFinalizer) || p.Labels[v1alpha1.SandboxIDLabelKey] != s.GetId() {
			t.Errorf("%s lost its finalizer or identity before its record was durable: %v %v", p.Name, p.Finalizers, p.Labels)
		}
		if got, err := l.Get(t.Context(), s.GetId()); err != nil || got.GetPhase() != sandboxv1.Phase_STOPPING {
			t.Errorf("%s is shown as %v, %v", s.GetId(), got, err)
		}
	}
	d.full.Store(false)
	for _, s := range sandboxes {
		l.Until(s.GetId(), "the record", claimtest.Ended)
	}
	w.Eventually("the Pods to go", func() error {
		for _, p := range w.Pods() {
			if p.DeletionTimestamp != nil {
				return fmt.Errorf("%s is there", p.Name)
			}
		}
		return nil
	})
	entries, err := d.Range(t.Context(), "log/", "", 0)
	if err != nil || len(entries) != len(sandboxes) {
		t.Errorf("there are %d records, want %d (%v)", len(entries), len(sandboxes), err)
	}
	if got, err := l.Get(t.Context(), during.GetId()); err != nil || got.GetPhase() != sandboxv1.Phase_RUNNING {
		t.Errorf("what was given out meanwhile is %v, %v", got, err)
	}
}

// A Pod that is removed by force loses no record, whatever the state of the disk.
func TestAPodRemovedByForceIsRecorded(t *testing.T) {
	w, d := claimtest.NewWorld(t), newDisk()
	l := w.Start(2, on(t, d))
	s := l.MustCreate(claimtest.Keyed("k", 1))
	d.full.Store(true)
	pod := w.Pod(s.GetPod())
	w.Must(w.Live.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	w.Must(w.Live.Patch(t.Context(), pod, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`))))
	l.Until(s.GetId(), "the end to be known", claimtest.Ended)
	if again, err := l.TryCreate(claimtest.Keyed("k", 1)); err != nil || again.GetId() != s.GetId() {
		t.Errorf("I2: its key was answered %v, %v", again, err)
	}
	page, err := l.List(t.Context(), &sandboxv1.ListSandboxesRequest{Phase: sandboxv1.Phase_ENDED, Namespace: w.Namespace})
	if err != nil || len(page.GetSandboxes()) != 1 {
		t.Errorf("the list of ended ones: %v, %v", page, err)
	}
	d.full.Store(false)
	w.Eventually("the record to be durable", func() error {
		entries, err := d.Range(t.Context(), "record/", "", 0)
		return wait.If(err == nil && len(entries) == 1, fmt.Sprintf("%d records: %v", len(entries), err))
	})
	if got, err := l.Get(t.Context(), s.GetId()); err != nil || got.GetFailureReason() != "PodDeleted" || got.GetStopReason() != "Failed" {
		t.Errorf("the record is %v, %v", got, err)
	}
}

func TestListOfEndedSandboxes(t *testing.T) {
	w, l := claimtest.Start(t, 4)
	lived, gone := l.MustCreate(), []string{}
	began := time.Now().Add(-time.Minute)
	for range 3 {
		s := l.MustCreate()
		l.MustRelease(s.GetId())
		l.Until(s.GetId(), "its record", claimtest.Ended)
		gone = append(gone, s.GetId())
	}
	list := func(r *sandboxv1.ListSandboxesRequest) (ids []string) {
		t.Helper()
		r.Namespace = w.Namespace // the control plane is shared
		for {
			page, err := l.List(t.Context(), r)
			w.Must(err)
			for _, s := range page.GetSandboxes() {
				ids = append(ids, s.GetId())
			}
			if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
				return ids
			}
		}
	}
	ended := sandboxv1.Phase_ENDED
	for name, tc := range map[string]struct {
		r    *sandboxv1.ListSandboxesRequest
		want []string
	}{
		"live":          {&sandboxv1.ListSandboxesRequest{}, []string{lived.GetId()}},
		"ended":         {&sandboxv1.ListSandboxesRequest{Phase: ended}, gone},
		"in pages":      {&sandboxv1.ListSandboxesRequest{Phase: ended, PageSize: 2}, gone},
		"one by one":    {&sandboxv1.ListSandboxesRequest{StopReason: "Released", PageSize: 1}, gone},
		"failed":        {&sandboxv1.ListSandboxesRequest{StopReason: "Failed"}, nil},
		"of the team":   {&sandboxv1.ListSandboxesRequest{Phase: ended, Team: "red", User: "ann", Pool: "p"}, gone},
		"of another":    {&sandboxv1.ListSandboxesRequest{Phase: ended, Team: "blue"}, nil},
		"of a pool":     {&sandboxv1.ListSandboxesRequest{Phase: ended, Pool: "q"}, nil},
		"since":         {&sandboxv1.ListSandboxesRequest{EndedAfter: timestamppb.New(began)}, gone},
		"until":         {&sandboxv1.ListSandboxesRequest{EndedBefore: timestamppb.New(began)}, nil},
		"of no cluster": {&sandboxv1.ListSandboxesRequest{Phase: ended, ClusterId: "west"}, nil},
	} {
		if got := list(tc.r); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	for name, r := range map[string]*sandboxv1.ListSandboxesRequest{
		"a phase that does not fit": {Phase: sandboxv1.Phase_RUNNING, StopReason: "Failed"},
		"a reason that is none":     {StopReason: "Tired"},
		"a time that is none":       {EndedAfter: &timestamppb.Timestamp{Nanos: -1}},
		"an empty span":             {EndedAfter: timestamppb.New(began), EndedBefore: timestamppb.New(began)},
		"a page of less than none":  {PageSize: -1},
	} {
		if _, err := l.List(t.Context(), r); problem.FromError(err).Reason != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
