// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/pkg/wallclock"
)

const (
	// lastPatience is how long work under way may continue after serving has ended.
	lastPatience = 5 * time.Second
	// leasePoll is the interval at which a lapsed lease is checked.
	leasePoll = 200 * time.Millisecond
)

// term is one term of leadership.
type term struct {
	lease          Lease
	incarnation    uint64
	leading        context.Context // set while serving
	suspended      bool            // serves nothing in this term, even if it has not begun yet
	lasting        context.Context // set while serving, and a while longer
	complete       bool            // the index has been complete once
	reportingAgain bool            // see ReportAgain
	running        int             // jobs under way
	drained        chan struct{}   // closed when no job is left; nil if nothing waits for that
}

// Serving reports whether this process serves claims now.
func (t *term) Serving() bool { return t.leading != nil && t.lease.Held() }

// Leading returns the context of the term, or nil if this process does not lead or must stop serving.
func (t *term) Leading() context.Context { return t.leading }

// Lasts reports whether work may still begin: during the term and for a while after it.
func (t *term) Lasts() bool { return t.lasting != nil }

// Complete reports whether the index was ever complete.
func (t *term) Complete() bool { return t.complete }

// Incarnation returns the number that claims write on Pods.
func (t *term) Incarnation() uint64 { return t.incarnation }

// NeedLeaderElection makes the manager call Start on the leader only.
func (i *Inventory) NeedLeaderElection() bool { return true }

// SetIncarnation sets the number that claims write on Pods. The first call lets the worker serve.
func (i *Inventory) SetIncarnation(n uint64) {
	i.Update(func(s *State) {
		s.incarnation = n
		select {
		case <-i.armed:
		default:
			close(i.armed)
		}
	})
}

// Start serves until ctx ends. First it waits for an incarnation and for the informers. Then it lists live the Pods that an earlier leader
// may have written, because the informers can lag. If etcd was restored from a backup, Start stops serving, and returns ErrSetBack in the
// end.
func (i *Inventory) Start(ctx context.Context) error {
	if err := i.ready(ctx); err != nil {
		return nil // ctx ended; losing the leadership is no failure
	}
	pods, err := i.listClaimed(ctx)
	if err != nil {
		return nil // as above
	}
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	i.lead(ctx, lasting, pods)
	i.opts.Log.Info("Serving claims", "cluster", i.opts.ClusterID, "claimed", len(pods))
	var running sync.WaitGroup
	for _, o := range i.observers {
		if o.Run != nil {
			running.Go(func() { o.Run(ctx) })
		}
	}
	i.watchPods(ctx)
	<-ctx.Done()
	i.Suspend()
	go func() {
		_ = wallclock.Sleep(lasting, i.opts.Clock, lastPatience)
		stop()
	}()
	running.Wait()
	i.drain()
	i.Update(func(s *State) { s.suspended = false })
	if i.wasSetBack() {
		return ErrSetBack
	}
	return nil
}

// ready waits for everything that serving needs.
func (i *Inventory) ready(ctx context.Context) error {
	select {
	case <-i.armed:
	case <-ctx.Done():
		return ctx.Err()
	}
	for !i.informed() {
		if err := wallclock.Sleep(ctx, i.opts.Clock, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (i *Inventory) informed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, synced := range i.synced {
		if !synced() {
			return false
		}
	}
	return true
}

func (i *Inventory) listClaimed(ctx context.Context) ([]corev1.Pod, error) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		pods, err := i.opts.Client.claimed(ctx, i.opts.Namespaces)
		if err == nil {
			return pods, nil
		}
		i.opts.Log.Error(err, "Cannot serve claims yet", "cluster", i.opts.ClusterID)
		if err := wallclock.Sleep(ctx, i.opts.Clock, wait); err != nil {
			return nil, err
		}
	}
}

// lead adds the listed Pods before the worker serves.
func (i *Inventory) lead(ctx, lasting context.Context, claimed []corev1.Pod) {
	i.Update(func(s *State) {
		for n := range claimed {
			s.SeeLive(&claimed[n])
		}
	})
	i.Update(func(s *State) {
		s.lasting, s.complete = lasting, true
		if !s.suspended {
			s.leading = ctx
		}
		for _, o := range i.observers {
			if o.Led != nil {
				o.Led(s)
			}
		}
		s.reportAll()
	})
}

// reportAll reports each sandbox to the observers as if it had changed.
func (s *State) reportAll() {
	for _, p := range s.byID {
		s.changes = append(s.changes, Change{Kind: Seen, Pod: p, Sandbox: p.id, Before: p.object, View: p.object})
	}
}

// AwaitLease waits until the lease is held, limit has passed or ctx ends. It reports whether the lease is held.
func (i *Inventory) AwaitLease(ctx context.Context, limit time.Duration) bool {
	for waited := time.Duration(0); !i.LeaseHeld(); waited += leasePoll {
		if waited >= limit || wallclock.Sleep(ctx, i.opts.Clock, leasePoll) != nil {
			return i.LeaseHeld()
		}
	}
	return true
}

// ReportAgain reports all sandboxes to the observers again when the lapsed lease is held. An observer that does nothing without the lease
// calls it, because no other event may come. If another process leads instead, the term ends, and that process checks all sandboxes.
func (s *State) ReportAgain() {
	ctx := s.leading
	if ctx == nil || s.reportingAgain {
		return
	}
	s.reportingAgain = true
	i := s.inventory
	s.Begin(func() {
		i.AwaitLease(ctx, math.MaxInt64)
		i.Update(func(s *State) {
			s.reportingAgain = false
			if ctx.Err() == nil {
				s.reportAll() // if the lease has lapsed again, an observer calls ReportAgain
			}
		})
	})
}

// Suspend refuses all new calls for the rest of this term, even if it does not serve yet. Waiting claims end with their context. Writes
// under way complete, and sandboxes that no caller has are still ended, because the lease is released only after that.
func (i *Inventory) Suspend() {
	i.Update(func(s *State) {
		s.leading, s.suspended = nil, true
		for _, o := range i.observers {
			if o.Retired != nil {
				o.Retired(s)
			}
		}
	})
}

// Serving reports whether this process serves claims now.
func (i *Inventory) Serving() (serving bool) {
	i.View(func(v *View) { serving = v.Serving() })
	return serving
}

// Go starts work that outlives a call. It does so during the term and for a while after; later it starts nothing.
func (s *State) Go(work func(ctx context.Context)) {
	if ctx := s.lasting; ctx != nil {
		s.Begin(func() { work(ctx) })
	}
}

// Begin runs work in a goroutine that the end of the term waits for.
func (s *State) Begin(work func()) {
	s.running++
	go func() {
		defer s.inventory.Update((*State).finished)
		work()
	}()
}

func (s *State) finished() {
	if s.running--; s.running == 0 && s.drained != nil {
		close(s.drained)
		s.drained = nil
	}
}

// drain waits until no work is under way, including work that other work starts. After that no work starts.
func (i *Inventory) drain() {
	for {
		var drained chan struct{}
		i.Update(func(s *State) {
			if s.running == 0 {
				s.lasting = nil
				return
			}
			drained = make(chan struct{})
			s.drained = drained
		})
		if drained == nil {
			return
		}
		<-drained
	}
}
