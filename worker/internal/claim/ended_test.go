// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// A sandbox that ends while its worker ends is recorded by the next one.
func TestWhatEndsWithAWorkerIsRecordedByTheNext(t *testing.T) {
	w := newWorld(t)
	w.makePool(1)
	l := w.lead(1)
	l.awaitIdle("p", 1)
	sandbox := l.mustCreate()
	l.StopRecording()
	pod := w.pod(sandbox.GetPod())
	w.must(w.live.Delete(t.Context(), pod))
	w.eventually("the Pod to have ended", func() error {
		if p := w.pod(pod.Name); p.DeletionTimestamp == nil || p.Status.Phase == "Running" {
			return errors.New("it has not")
		}
		return nil
	})
	l.stop()
	next := w.lead(2)
	w.eventually("the record", func() error {
		got, err := next.Get(t.Context(), sandbox.GetId())
		if err == nil && got.GetPhase() != sandboxv1.Phase_ENDED {
			err = errors.New(got.GetPhase().String())
		}
		return err
	})
}
