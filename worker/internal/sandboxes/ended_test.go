// SPDX-License-Identifier: Apache-2.0

package sandboxes_test

import (
	"testing"

	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/claim/claimtest"
)

// A sandbox that ends while its worker ends is recorded by the next one.
func TestWhatEndsWithAWorkerIsRecordedByTheNext(t *testing.T) {
	w, l := claimtest.Start(t, 1)
	sandbox := l.MustCreate()
	l.StopRecording()
	pod := w.Pod(sandbox.GetPod())
	w.Must(w.Live.Delete(t.Context(), pod))
	w.Eventually("the Pod to have ended", func() error {
		p := w.Pod(pod.Name)
		return wait.If(p.DeletionTimestamp != nil && p.Status.Phase != "Running", "it has not")
	})
	l.Stop()
	next := w.Lead(2)
	next.Until(sandbox.GetId(), "the record", claimtest.Ended)
}
