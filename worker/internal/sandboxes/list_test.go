// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/worker/internal/history"
	"navix.sh/atoll/worker/internal/inventory/inventorytest"
	"navix.sh/atoll/worker/internal/sandbox"
)

// overtaken is a store in which something happens once, between a read and its response.
type overtaken struct {
	store.Store
	by atomic.Pointer[func()]
}

func (o *overtaken) Range(ctx context.Context, prefix, after string, limit int) ([]store.Entry, error) {
	entries, err := o.Store.Range(ctx, prefix, after, limit)
	if by := o.by.Swap(nil); by != nil {
		(*by)()
	}
	return entries, err
}

// A sandbox that gets its record while ended sandboxes are listed is in the list.
func TestAListHasASandboxThatIsRecordedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &overtaken{Store: store.NewMemory()}
		h, err := history.Open(t.Context(), history.Options{Store: disk, Time: clock.RealClock{}})
		must.Succeed(t, err)
		t.Cleanup(func() { must.Succeed(t, h.Close()) })
		at := inventorytest.New(t)
		s, err := New(at.Inventory, Options{History: h})
		must.Succeed(t, err)
		at.Lead()
		pod := at.Edited(at.ClaimedPod("a", id), func(p *corev1.Pod) {
			p.Labels[v1alpha1.SandboxPhaseLabelKey] = string(sandbox.Failed)
			p.Annotations[v1alpha1.SandboxStopReasonAnnotationKey] = string(v1alpha1.SandboxStopReasonFailed)
		})
		at.Appear(pod)
		recorded := func() {
			record := sandbox.TerminalRecord(pod, nil, "east", time.Now(), nil)
			must.Succeed(t, s.Ended(t.Context(), record, sandbox.Read(pod).Claim))
		}
		disk.by.Store(&recorded)
		got, err := s.List(t.Context(), &sandboxv1.ListSandboxesRequest{Phase: sandboxv1.Phase_ENDED})
		must.Succeed(t, err)
		if !s.HasEnded(id) {
			t.Fatal("it has no record")
		}
		if listed := got.GetSandboxes(); len(listed) != 1 || listed[0].GetId() != id {
			t.Errorf("listed %v", listed)
		}
	})
}
