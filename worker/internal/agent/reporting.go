// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/segment"
)

const (
	coalesce = 100 * time.Millisecond
	// indexPause is the first pause between two key indexes for late writes. The pause doubles up to maxIndexPause. Each index makes the hub
	// check every key, and a user who may edit Pods can make sandboxes appear (I14).
	indexPause    = 30 * time.Second
	maxIndexPause = 10 * time.Minute
)

// reporting is the state of a stream's reports.
type reporting struct {
	out      outbox
	pending  map[segment.Key]*segment.Segment // changes not reported yet; nil: removed
	flushAt  clock.Timer                      // nil while nothing waits
	complete bool                             // the next report must be complete
	resume   bool                             // the next report has the differences from out.reported, and the key index
	covered  uint64                           // how many late writes the last key index covers
	indexAt  time.Time                        // when the next index for late writes may be sent
	pause    time.Duration                    // the pause before indexAt
	chunks   []*federationv1.Report           // of the report that is being sent
	sent     struct{ sequence, digest uint64 }
}

// keepReported keeps the reported state for the next stream of this term. It keeps nothing if the hub may have more or less than that.
func (u *uplink) keepReported() {
	u.agent.sequence, u.agent.reported = u.out.sequence, nil
	if whole := !u.complete && !u.resume && len(u.chunks) == 0; whole && u.out.acked == u.out.sequence {
		u.agent.reported = &u.out.reported
	}
}

// lookForLateWrites adds the key index to the next report if sandboxes have appeared that this leader did not write.
func (u *uplink) lookForLateWrites(ctx context.Context) error {
	now := u.clock.Now()
	if u.agent.opts.Claims.LateWrites() == u.covered || now.Before(u.indexAt) {
		return nil
	}
	u.pause = min(max(2*u.pause, indexPause), maxIndexPause)
	u.resume, u.indexAt = true, now.Add(u.pause)
	return u.flush(ctx)
}

func (u *uplink) due() <-chan time.Time {
	if u.flushAt == nil {
		return nil
	}
	return u.flushAt.C()
}

func (u *uplink) arm() {
	if u.flushAt == nil {
		u.flushAt = u.clock.NewTimer(coalesce)
	}
}

func (u *uplink) disarm() {
	if u.flushAt != nil {
		u.flushAt.Stop()
		u.flushAt = nil
	}
}

// collect checks the marked Envs, and reports immediately if there is an edge.
func (u *uplink) collect(ctx context.Context) error {
	urgent, err := u.takeMarked(ctx)
	if err != nil {
		return err
	}
	if urgent {
		return u.flush(ctx)
	}
	if len(u.pending) > 0 {
		u.arm()
	}
	return nil
}

func (u *uplink) takeMarked(ctx context.Context) (urgent bool, err error) {
	for k := range u.agent.source.Take() {
		s, err := u.agent.source.Segment(ctx, k)
		if err != nil {
			return false, err
		}
		u.pending[k] = s
		urgent = urgent || segment.Edge(u.out.reported.Get(k), s)
	}
	return urgent, nil
}

// flush reports pending changes if there is credit. Without credit, the next acknowledgement triggers it again.
func (u *uplink) flush(ctx context.Context) error {
	if !u.out.ready() || len(u.chunks) > 0 {
		return nil
	}
	u.disarm()
	// Check newer marks as well, because an answer may have promised them.
	if _, err := u.takeMarked(ctx); err != nil {
		return err
	}
	if u.complete || u.resume {
		all, err := u.agent.source.All(ctx)
		if err != nil {
			return err
		}
		u.covered = u.agent.opts.Claims.LateWrites()
		keys := u.agent.opts.Claims.Keys
		if u.agent.recovers {
			keys = u.agent.opts.Claims.AllKeys
		}
		if u.complete {
			u.chunks = u.out.complete(all, keys())
		} else {
			u.chunks = u.out.resume(all, keys())
		}
		u.complete, u.resume = false, false
	} else {
		u.chunks = u.out.delta(deltaOf(u.pending))
	}
	clear(u.pending)
	return nil
}

func deltaOf(pending map[segment.Key]*segment.Segment) segment.Delta {
	var d segment.Delta
	for k, s := range pending {
		if s == nil {
			d.Removed = append(d.Removed, k)
		} else {
			d.Changed = append(d.Changed, s)
		}
	}
	return d
}

// cover returns the sequence of a report that includes all effects so far. The report precedes the answer where possible. Otherwise the hub
// would subtract the Pod twice: in the count of an earlier report, and for the claim until its covering report arrives.
func (u *uplink) cover(ctx context.Context) (sequence uint64, err error) {
	if u.complete || u.resume || len(u.chunks) > 0 || !u.out.ready() {
		u.arm()
		return u.out.coveredBy(), nil
	}
	if err := u.flush(ctx); err != nil {
		return 0, err
	}
	for len(u.chunks) > 0 {
		if err := u.nextChunk(ctx); err != nil {
			return 0, err
		}
	}
	return u.out.sequence, nil
}

func (u *uplink) nextChunk(ctx context.Context) error {
	chunk := u.chunks[0]
	u.chunks = u.chunks[1:]
	if err := u.transmit(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Report{Report: chunk}}); err != nil {
		return err
	}
	if !chunk.GetLast() {
		return nil
	}
	u.agent.metrics.reported(chunk)
	u.agent.metrics.unacked.Set(float64(u.out.sequence - u.out.acked))
	u.sent.sequence, u.sent.digest = chunk.GetSequence(), chunk.GetDigest()
	return u.goOn(ctx)
}

// goOn reports changes that waited for the end of a report, or for credit.
func (u *uplink) goOn(ctx context.Context) error {
	if u.complete || u.resume {
		return u.flush(ctx)
	}
	if len(u.pending) > 0 || u.out.promised {
		u.arm()
	}
	return nil
}
