// SPDX-License-Identifier: Apache-2.0

package allotment

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/allotpolicy"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	// lookEvery is the interval at which new and forgotten clusters are noticed.
	lookEvery = time.Second
	// warmUp is the time for clusters to respond to a new leader before it divides.
	warmUp = 4 * time.Second
	// allEvery is the interval at which all groups are divided again, even if nothing has changed.
	allEvery = 10 * time.Second
	// unseenFor is how long a cluster that this replica has not seen yet counts as present. It is as long as for a cluster that has become
	// silent.
	unseenFor = 40 * time.Second
	// reclaimIn is how long a cluster may still be registered after an operator reclaims its share.
	reclaimIn = time.Minute
)

// leader is one term of this replica.
type leader struct {
	*Service
	term  *term
	end   context.CancelFunc
	since time.Time

	mu       sync.Mutex // held during writes: decisions that follow from a change are made after it
	division *allotpolicy.Division
	wakes    map[string]chan struct{}
	unbound  map[string]bool // clusters whose workers do not know rooms
	reclaims map[string]time.Time
	lost     map[string]bool // clusters that get no claims
	allAt    time.Time
}

// lead divides until ctx ends, another replica leads, or the store fails.
func (s *Service) lead(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	l, err := s.begin(ctx, end)
	if err != nil {
		if ctx.Err() == nil {
			s.opts.Log.Info("Nothing is divided yet", "error", err.Error())
		}
		return
	}
	s.opts.Log.Info("This replica divides maxReplicas over clusters", "epoch", l.term.epoch.Epoch)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer end()
	for ctx.Err() == nil {
		for _, id := range s.opts.Fleet.ClusterIDs() {
			if wake, fresh := l.enrol(id); fresh {
				asking.Go(func() { l.keepAsking(ctx, id, wake) })
			}
		}
		if err := l.settle(ctx); err != nil {
			l.fail(ctx, err)
			return
		}
		_ = wallclock.Sleep(ctx, s.opts.Clock, lookEvery)
	}
}

func (s *Service) begin(ctx context.Context, end context.CancelFunc) (*leader, error) {
	t, err := begin(ctx, s.opts.Store)
	if err != nil {
		return nil, err
	}
	records, err := loadRecords(ctx, s.opts.Store)
	if err != nil {
		return nil, err
	}
	addressed, err := loadAddressed(ctx, s.opts.Store)
	if err != nil {
		return nil, err
	}
	l := &leader{
		Service: s, term: t, end: end, since: s.opts.Clock.Now(), division: allotpolicy.NewDivision(t.epoch.Epoch, records, addressed),
		wakes: map[string]chan struct{}{}, unbound: map[string]bool{}, reclaims: map[string]time.Time{},
	}
	l.division.Others = l.others
	l.division.Lost = func(cluster string) bool { return l.lost[cluster] }
	s.show(records)
	return l, nil
}

// fail ends the term: the content of the store is not known, or another leader wrote it.
func (l *leader) fail(ctx context.Context, err error) {
	if ctx.Err() == nil {
		l.opts.Log.Info("This replica stops dividing maxReplicas", "cause", err.Error())
	}
	l.end()
}

// enrol returns the channel that wakes a cluster's goroutine, and whether the goroutine must be started.
func (l *leader) enrol(id string) (wake chan struct{}, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wake = l.wakes[id]; wake != nil {
		return wake, false
	}
	wake = make(chan struct{}, 1)
	l.wakes[id] = wake
	return wake, true
}

// settle applies the registrations of clusters, the reclaims of operators, and the passing of time.
func (l *leader) settle(ctx context.Context) error {
	registered, lost := map[string]string{}, map[string]bool{}
	for _, id := range l.opts.Fleet.ClusterIDs() {
		if uid := l.opts.Fleet.Registration(id); uid != "" {
			registered[id] = uid
		}
		if l.isLost(l.opts.Fleet.Cluster(id)) {
			lost[id] = true
		}
	}
	reclaimed, done, err := l.reclaimed(ctx, registered)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.opts.Clock.Now()
	if !l.division.Warm && now.Sub(l.since) >= warmUp {
		l.division.Warm, l.allAt = true, time.Time{}
	}
	all := now.Sub(l.allAt) >= allEvery || !maps.Equal(lost, l.lost)
	l.lost = lost
	if all {
		l.allAt = now
	}
	if err := l.store(ctx, l.division.Settle(registered, reclaimed, all)); err != nil || len(done) == 0 {
		return err
	}
	return l.term.commit(ctx, store.Txn{If: []store.Condition{l.term.held}, Deletes: done})
}

// isLost reports whether a cluster gets no claims, so that the others keep its part of minReplicas: it is silent for 40 s, quarantined
// because two clusters use its name, or draining.
func (l *leader) isLost(c *sandboxv1.Cluster) bool {
	switch c.GetState() {
	case sandboxv1.ClusterState_QUARANTINED, sandboxv1.ClusterState_DRAINING:
		return true
	case sandboxv1.ClusterState_UNREACHABLE:
		return c.GetLastSeen() != nil || l.opts.Clock.Since(l.since) >= unseenFor
	}
	return false
}

// reclaimed returns the clusters that operators reclaim and that are not registered, and the store's entries that are done.
func (l *leader) reclaimed(ctx context.Context, registered map[string]string) (clusters, done []string, err error) {
	for e, err := range store.All(ctx, l.opts.Store, reclaimPrefix, 1000) {
		if err != nil {
			return nil, nil, err
		}
		id, now := strings.TrimPrefix(e.Key, reclaimPrefix), l.opts.Clock.Now()
		since, known := l.reclaims[id]
		switch {
		case registered[id] == "":
			clusters, done = append(clusters, id), append(done, e.Key)
			delete(l.reclaims, id)
		case !known:
			l.reclaims[id] = now // this replica may not know yet that the cluster was forgotten
		case now.Sub(since) > reclaimIn:
			done = append(done, e.Key)
			delete(l.reclaims, id)
		}
		if len(done) >= maxPuts {
			break
		}
	}
	return clusters, done, nil
}

// store writes a change, and wakes the clusters whose rooms have changed. Called with the lock held.
func (l *leader) store(ctx context.Context, c allotpolicy.Change) error {
	return l.term.write(ctx, c, func(part allotpolicy.Change) {
		before := l.division.Records()
		for k, r := range part.Records {
			for id, share := range r.Shares {
				if was := before[k].Shares[id]; share.Room != was.Room || share.Floor != was.Floor {
					wake(l.wakes[id])
				}
			}
		}
		l.division.Apply(part)
		l.show(part.Records)
	})
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// others counts the clusters that have a group and have not responded. Called with the lock held.
func (l *leader) others(k allotpolicy.Key, answered func(cluster string) bool) (out allotpolicy.Others) {
	env := l.opts.Fleet.Env(segment.Key{Namespace: k.Namespace, Name: k.Env})
	for _, c := range env.GetClusters() {
		var holds int32
		has := false
		for _, m := range c.GetMembers() {
			if m.GetScalingGroup() == k.Group {
				has, holds = true, segment.Sum(holds, max(m.GetDesired(), segment.Sum(m.GetIdle(), m.GetRunning())))
			}
		}
		_, shared := l.division.Records()[k].Shares[c.GetClusterId()]
		switch {
		case !has || answered(c.GetClusterId()) || shared:
		case l.unbound[c.GetClusterId()]:
			out.Unbound = segment.Sum(out.Unbound, holds)
		default:
			out.Missing++
		}
	}
	return out
}
