// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"context"
	"testing"
	"time"
)

// I14: a cluster that opens streams without end is read slowly; another is not held up by it.
func TestI14AClustersStreamsArePaced(t *testing.T) {
	const (
		many  = 4096 + 8000
		least = 3900 * time.Millisecond // 8000 beyond the first 4096, at 2000 a second
	)
	ca := authority(t, t.TempDir())
	address := serve(t, issued(t)(ca.Hub("127.0.0.1")), nil)
	began := time.Now()
	client := plainClient(t, ca, address, "a")
	sent, flood := make(chan struct{}), make(chan error, 1)
	go func() {
		for range many {
			ctx, cancel := context.WithCancel(t.Context())
			_, _ = client.Attach(ctx)
			cancel()
		}
		close(sent)
		flood <- attach(t.Context(), client, "a") // after all others of its connection
	}()
	<-sent
	if err := attach(t.Context(), plainClient(t, ca, address, "b"), "b"); err != nil {
		t.Error(err)
	}
	select {
	case err := <-flood:
		t.Fatalf("the other cluster waited until the flood was over: %v", err)
	default:
	}
	if err := <-flood; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < least {
		t.Errorf("%d streams took %s, want at least %s", many, took, least)
	}
}
