// SPDX-License-Identifier: Apache-2.0

package sandboxes_test

import (
	"errors"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/worker/internal/claim/claimtest"
)

// A sandbox that ends while its worker ends is recorded by the next one.
func TestWhatEndsWithAWorkerIsRecordedByTheNext(t *testing.T) {
	w := claimtest.NewWorld(t)
	w.MakePool(1)
	l := w.Lead(1)
	l.AwaitIdle(1)
	sandbox := l.MustCreate()
	l.StopRecording()
	pod := w.Pod(sandbox.GetPod())
	w.Must(w.Live.Delete(t.Context(), pod))
	w.Eventually("the Pod to have ended", func() error {
		if p := w.Pod(pod.Name); p.DeletionTimestamp == nil || p.Status.Phase == "Running" {
			return errors.New("it has not")
		}
		return nil
	})
	l.Stop()
	next := w.Lead(2)
	w.Eventually("the record", func() error {
		got, err := next.Get(t.Context(), sandbox.GetId())
		if err == nil && got.GetPhase() != sandboxv1.Phase_ENDED {
			err = errors.New(got.GetPhase().String())
		}
		return err
	})
}
