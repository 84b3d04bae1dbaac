// SPDX-License-Identifier: Apache-2.0

// Package historytest creates histories for tests.
package historytest

import (
	"context"
	"testing"

	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/worker/internal/history"
)

// New opens an empty history in memory, and closes it with the test.
func New(t testing.TB, times clock.PassiveClock) *history.History {
	t.Helper()
	h, err := history.Open(context.Background(), history.Options{Store: store.NewMemory(), Time: times})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}
