// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// renewPatience is how long calls wait for a worker that attaches again with a new certificate. Attaching takes a fraction of a second, or
// a few seconds on a busy machine. A call takes 10 s at most.
const renewPatience = 6 * time.Second

const (
	// renewalShare limits the clusters that may attach again at a time to one in renewalShare: meanwhile claims find the others.
	renewalShare = 4
	// renewalLasts is how long a cluster that was asked to renew keeps its slot, unless it has attached again before. renewalPause is the
	// delay before the next request for a slot.
	renewalLasts = 2 * renewPatience
	renewalPause = 500 * time.Millisecond
	// maxRepeats bounds how often a call is sent again.
	maxRepeats = 3
)

// holdAgain restarts the hold of a renewed cluster when its stream ends, however long the worker took until then.
func (s *Server) holdAgain(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.renewing.Load() && s.conns[c.clusterID] == c {
		s.beginHold(c.clusterID)
	}
}

// takeRenewal reports whether a cluster may be asked to renew now, and takes a slot for it. A cluster whose certificate is about to expire
// does not wait.
func (s *Server) takeRenewal(clusterID string, urgent bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opts.Clock.Now()
	for id, until := range s.renewals {
		if !now.Before(until) {
			delete(s.renewals, id)
		}
	}
	if _, has := s.renewals[clusterID]; !has && !urgent && len(s.renewals) >= max(1, len(s.conns)/renewalShare) {
		return false
	}
	s.renewals[clusterID] = now.Add(renewalLasts)
	return true
}

// repeat sends a call again that the end of a stream interrupted, if the worker attaches again with a new certificate. It returns the last
// outcome.
func (s *Server) repeat(ctx context.Context, c *conn, d *federationv1.Dispatch, began time.Time, cut error) (*federationv1.Answer, error) {
	timeout := d.GetTimeout() // nil: none
	for range maxRepeats {
		if !c.cutByRenewal() || errors.Is(cut, ErrUnclear) && !repeatable(d) || ctx.Err() != nil {
			return nil, cut
		}
		next := s.settled(ctx, c.clusterID)
		left := timeout.AsDuration() - s.opts.Clock.Since(began)
		if next == nil || next == c || timeout != nil && left <= 0 {
			return nil, cut
		}
		c, d = next, proto.CloneOf(d) // the ended stream may still read the original
		if timeout != nil {
			d.Timeout = durationpb.New(left)
		}
		answer, err := c.dispatch(ctx, d)
		if err == nil {
			return answer, nil
		}
		cut = err
	}
	return nil, cut
}

// repeatable reports whether a call may be carried out twice. A claim without a key may: its worker takes back what the ended stream did
// not deliver. A claim with a key is repeated by its pursuit. A conversation has ended with its stream.
func repeatable(d *federationv1.Dispatch) bool {
	switch call := d.GetCall().(type) {
	case *federationv1.Dispatch_Claim:
		return call.Claim.GetKeyHash() == ""
	case *federationv1.Dispatch_Reach, *federationv1.Dispatch_Watch, *federationv1.Dispatch_Kubernetes, *federationv1.Dispatch_Refresh:
		return false
	default:
		return true
	}
}

// cutByRenewal reports whether the stream has ended after its worker got a new certificate.
func (c *conn) cutByRenewal() bool {
	select {
	case <-c.done:
		return c.renewing.Load()
	default:
		return false
	}
}

// hold delays new calls while a worker attaches again, so that no call is in flight when its stream ends.
type hold struct {
	over  chan struct{} // closed by the next stream, here or at another replica
	until time.Time
}

// holdCalls begins a hold. The worker ends its stream once the calls that it got have returned.
func (s *Server) holdCalls(clusterID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginHold(clusterID)
}

// beginHold begins a hold, unless the cluster is attached to another replica. Called with the lock held.
func (s *Server) beginHold(clusterID string) {
	s.endHold(clusterID)
	if peer, _ := s.opts.Fleet.Where(clusterID); peer == "" {
		s.hold(clusterID)
	}
}

// hold begins a hold where there is none. Called with the lock held.
func (s *Server) hold(clusterID string) {
	s.holds[clusterID] = &hold{over: make(chan struct{}), until: s.opts.Clock.Now().Add(renewPatience)}
}

// expect begins a hold for a cluster whose first stream here is about to begin; because other replicas hear of the Begin, and send calls,
// before the stream takes them.
func (s *Server) expect(clusterID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holds[clusterID]
	if s.conns[clusterID] != nil || h != nil && s.opts.Clock.Now().Before(h.until) {
		return
	}
	s.endHold(clusterID) // one that its cluster has outlasted
	s.hold(clusterID)
}

// stopHolding ends the hold of a cluster that has attached to another replica, or whose stream did not begin.
func (s *Server) stopHolding(clusterID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endHold(clusterID)
}

// endHold ends a hold. Called with the lock held.
func (s *Server) endHold(clusterID string) {
	if h := s.holds[clusterID]; h != nil {
		close(h.over)
		delete(s.holds, clusterID)
	}
}

// Settle waits while a cluster is about to attach again, here or at another replica, until ctx ends.
func (s *Server) Settle(ctx context.Context, clusterID string) { s.settled(ctx, clusterID) }

// settled returns the cluster's stream after a hold, or nil if there is none.
func (s *Server) settled(ctx context.Context, clusterID string) *conn {
	for {
		s.mu.RLock()
		c, h := s.conns[clusterID], s.holds[clusterID]
		s.mu.RUnlock()
		if h == nil {
			return c
		}
		left := h.until.Sub(s.opts.Clock.Now())
		if left <= 0 {
			return c // it has not attached again: use its old stream
		}
		timer := s.opts.Clock.NewTimer(left)
		select {
		case <-h.over:
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return c
		}
		timer.Stop()
	}
}

// holding reports whether a cluster is about to attach again.
func (s *Server) holding(clusterID string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	h := s.holds[clusterID]
	return h != nil && s.opts.Clock.Now().Before(h.until)
}
