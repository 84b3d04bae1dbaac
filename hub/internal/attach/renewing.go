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

// renewPatience is how long calls wait for a worker that attaches again with a new certificate. It takes a fraction of a second, on a busy
// machine a few. A call takes 10 s at most.
const renewPatience = 6 * time.Second

const (
	// turnShare is the part of the attached clusters that may attach again at a time: claims find the others meanwhile.
	turnShare = 4
	// turnLasts is how long a cluster that was asked has its turn, unless it has attached again before. turnPause is when one asks again.
	turnLasts = 2 * renewPatience
	turnPause = 500 * time.Millisecond
	// maxRepeats bounds how often one call is sent again.
	maxRepeats = 3
)

// holdAgain begins the hold of a renewed cluster anew when its stream ends, however long the worker took until then.
func (s *Server) holdAgain(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.renewing.Load() && s.conns[c.clusterID] == c {
		s.hold(c.clusterID)
	}
}

// turn reports whether a cluster may be asked for a renewal now, and takes its turn. One whose certificate is about to end does not wait.
func (s *Server) turn(clusterID string, urgent bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opts.Clock.Now()
	for id, until := range s.turns {
		if !now.Before(until) {
			delete(s.turns, id)
		}
	}
	if _, has := s.turns[clusterID]; !has && !urgent && len(s.turns) >= max(1, len(s.conns)/turnShare) {
		return false
	}
	s.turns[clusterID] = now.Add(turnLasts)
	return true
}

// repeat sends a call again that the end of a stream has cut, where the worker attaches again with a new certificate. It returns the
// outcome of the last time.
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
		c, d = next, proto.CloneOf(d) // the ended stream may be reading the other one
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
// not deliver. One with a key is repeated by its pursuit, and a conversation has gone with its stream.
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

// hold keeps new calls back while a worker attaches again, so that none is under way when its stream ends.
type hold struct {
	over  chan struct{} // closed by the next stream, here or at another replica
	until time.Time
}

// holdCalls begins a hold. The worker ends its stream once the calls that it has got are over.
func (s *Server) holdCalls(clusterID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold(clusterID)
}

// hold is called with the lock held. A cluster that is attached to another replica is not waited for.
func (s *Server) hold(clusterID string) {
	s.release(clusterID)
	if peer, _ := s.opts.Fleet.Where(clusterID); peer != "" {
		return
	}
	s.holds[clusterID] = &hold{over: make(chan struct{}), until: s.opts.Clock.Now().Add(renewPatience)}
}

// attachedElsewhere ends the hold of a cluster that has attached to another replica.
func (s *Server) attachedElsewhere(clusterID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(clusterID)
}

// release ends a hold. The lock is held.
func (s *Server) release(clusterID string) {
	if h := s.holds[clusterID]; h != nil {
		close(h.over)
		delete(s.holds, clusterID)
	}
}

// Settle waits, at most until ctx ends, while a cluster is about to attach again: here, or at another replica.
func (s *Server) Settle(ctx context.Context, clusterID string) { s.settled(ctx, clusterID) }

// settled returns the cluster's stream, nil if there is none, after a hold.
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
			return c // it has not attached again, and is called as before
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
