// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kubelet_test

import (
	"context"
	"testing"
	"time"
)

const (
	// testLimit bounds a test; none comes near it unless it hangs.
	testLimit = 8 * time.Minute
	// patience bounds every wait for convergence, on a busy machine.
	patience = 2 * time.Minute
)

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	t.Cleanup(cancel)
	return ctx
}
