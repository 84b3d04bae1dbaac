// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/pkg/link"
)

// counting is a whoami that counts the streams of every caller.
type counting struct {
	whoami
	taken *atomic.Int64
}

func (c counting) Attach(stream grpc.BidiStreamingServer[federationv1.WorkerFrame, federationv1.HubFrame]) error {
	c.taken.Add(1)
	return c.whoami.Attach(stream)
}

// I14: a cluster that opens streams without end is read slowly; another is not held up by it.
func TestI14AClustersStreamsArePaced(t *testing.T) {
	const (
		burst, rate = 4096, 2000
		many        = burst + 8000
		behind      = 4000 // streams that the hub has not taken when the other cluster attaches
		most        = 10 * many
	)
	ca := authority(t, t.TempDir())
	server, taken := link.NewServer(credentials(t, issued(t)(ca.Hub("127.0.0.1"))), nil, testlog.New(t)), &atomic.Int64{}
	federationv1.RegisterLinkServer(server, counting{taken: taken})
	address := testserver.ServeGRPC(t, server)
	began := time.Now()
	client := plainClient(t, ca, address, "a")
	sent, flood := make(chan int64, 1), make(chan error, 1)
	go func() {
		opened := int64(0)
		// A slow machine opens more, because what it opens is taken meanwhile.
		for ; opened < many || opened-taken.Load() < behind && opened < most; opened++ {
			ctx, cancel := context.WithCancel(t.Context())
			_, _ = client.Attach(ctx)
			cancel()
		}
		sent <- opened
		flood <- attach(t.Context(), client, "a") // after all others of its connection
	}()
	opened := <-sent
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
	least := time.Duration(opened-burst)*time.Second/rate - 100*time.Millisecond
	if took := time.Since(began); took < least {
		t.Errorf("%d streams took %s, want at least %s", opened, took, least)
	}
}
