// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navix.sh/atoll/pkg/pace"
	"navix.sh/atoll/pkg/wallclock"
)

// A cluster may attach attachesAtOnce times at once, and then once a second; because each Welcome reads and writes the registry. A cluster
// that returns faster waits for its Welcome, and is refused if it would wait too long (I14).
const (
	attachesAtOnce    = 30
	attachesPerSecond = 1
	maxAttachWait     = 10 * time.Second
)

var attachLimits = pace.Limits{Rate: attachesPerSecond, Burst: attachesAtOnce * time.Second / attachesPerSecond, Least: attachesAtOnce}

// throttle waits until a cluster may get a Welcome.
func (s *Server) throttle(ctx context.Context, clusterID string) error {
	wait := s.attaches.Take(clusterID, 1)
	if wait > maxAttachWait {
		s.attaches.Take(clusterID, -1)
		return status.Errorf(codes.ResourceExhausted, "cluster %s attaches too often, want at most once a second", clusterID)
	}
	if wait <= 0 {
		return nil
	}
	return status.FromContextError(wallclock.Sleep(ctx, s.opts.Clock, wait)).Err()
}
