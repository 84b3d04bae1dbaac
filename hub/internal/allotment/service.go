// SPDX-License-Identifier: Apache-2.0

package allotment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/pkg/allotpolicy"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	leadership = "allotments" // name by which replicas elect the one that divides
	// again is the pause after a failure of the store.
	again = time.Second
)

// Fleet is the hub's view of its clusters.
type Fleet interface {
	ClusterIDs() []string
	Cluster(id string) *sandboxv1.Cluster
	Registration(id string) (uid string)
	Env(key segment.Key) *sandboxv1.Env
	// Serves reports whether a cluster's scope includes an Env.
	Serves(clusterID string, key segment.Key) bool
}

// Options configure a Service.
type Options struct {
	Store   store.Store
	Fleet   Fleet
	Calls   calls.Dispatcher // to every cluster
	Clock   clock.WithTicker
	Metrics prometheus.Registerer // nil: none
	Log     logr.Logger
}

// Service divides while this replica leads, and knows the current division.
type Service struct {
	opts  Options
	state atomic.Pointer[map[allotpolicy.Key]allotpolicy.Record] // immutable
	mu    sync.Mutex                                             // guards changes of state
}

// New returns a Service. Callers then call Run.
func New(o Options) (*Service, error) {
	s := &Service{opts: o}
	s.state.Store(&map[allotpolicy.Key]allotpolicy.Record{})
	if o.Metrics != nil {
		if err := o.Metrics.Register(collector{s}); err != nil {
			return nil, fmt.Errorf("registering metrics of allotments: %w", err)
		}
	}
	return s, nil
}

// Run divides while this replica leads, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	shared, several := s.opts.Store.(store.Shared)
	var parts sync.WaitGroup
	defer parts.Wait()
	if several {
		parts.Go(func() { s.follow(ctx, shared) })
	}
	for ctx.Err() == nil {
		if !several {
			s.lead(ctx)
		} else if err := shared.Lead(ctx, leadership, s.lead); errors.Is(err, store.ErrClosed) {
			return nil
		}
		_ = wallclock.Sleep(ctx, s.opts.Clock, again)
	}
	return nil
}

// follow applies the leader's writes.
func (s *Service) follow(ctx context.Context, shared store.Shared) {
	load := func(ctx context.Context) error {
		records, err := loadRecords(ctx, s.opts.Store)
		if err == nil {
			s.mu.Lock()
			s.state.Store(&records)
			s.mu.Unlock()
		}
		return err
	}
	store.KeepFollowing(ctx, shared, store.FollowOptions{
		Prefix: recordPrefix, Load: load, Changed: s.apply, Clock: s.opts.Clock,
		Failed: func(err error) {
			s.opts.Log.Info("Could not follow allotments in the store; the last state is shown", "error", err.Error())
		},
	})
}

func (s *Service) apply(events []store.Event) {
	changed := map[allotpolicy.Key]allotpolicy.Record{}
	for _, e := range events {
		if k, ok := parseKey(e.Key); ok && e.Deleted {
			changed[k] = allotpolicy.Record{}
		} else if r, err := parseRecord(e.Entry); ok && err == nil {
			changed[k] = r
		}
	}
	s.show(changed)
}

// show publishes changed records for Shares and metrics.
func (s *Service) show(changed map[allotpolicy.Key]allotpolicy.Record) {
	if len(changed) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(*s.state.Load())
	for k, r := range changed {
		if r.Empty() {
			delete(next, k)
		} else {
			next[k] = r
		}
	}
	s.state.Store(&next)
}

// Shares returns how maxReplicas and minReplicas of an Env's groups are divided.
func (s *Service) Shares(key segment.Key) []*sandboxv1.Allotment {
	var out []*sandboxv1.Allotment
	for k, r := range *s.state.Load() {
		if k.Namespace == key.Namespace && k.Env == key.Name {
			out = append(out, shown(k, r))
		}
	}
	slices.SortFunc(out, func(a, b *sandboxv1.Allotment) int { return cmp.Compare(a.GetGroup(), b.GetGroup()) })
	return out
}

func shown(k allotpolicy.Key, r allotpolicy.Record) *sandboxv1.Allotment {
	out := &sandboxv1.Allotment{Group: k.Group, MaxReplicas: r.Max, MinReplicas: r.Min}
	for id, share := range r.Shares {
		out.Shares = append(out.Shares, &sandboxv1.AllotmentShare{
			ClusterId: id, Room: share.Room, MayHold: share.Most, Floor: share.Floor, Replaced: share.Replaced,
		})
	}
	for _, lost := range r.Lost {
		out.Shares = append(out.Shares, &sandboxv1.AllotmentShare{ClusterId: lost.Cluster, MayHold: lost.Most, Forgotten: true})
	}
	slices.SortFunc(out.Shares, func(a, b *sandboxv1.AllotmentShare) int { return cmp.Compare(a.GetClusterId(), b.GetClusterId()) })
	return out
}

// Reclaim takes back what a cluster may hold once the cluster is forgotten: the operator states that its Pods are gone.
func (s *Service) Reclaim(ctx context.Context, cluster string) error {
	if cluster == "" || strings.Contains(cluster, "/") {
		return problem.InvalidField("id", cluster, "the name of a cluster")
	}
	if _, err := s.opts.Store.Commit(ctx, store.Txn{Puts: []store.Put{{Key: reclaimPrefix + cluster, Value: []byte("{}")}}}); err != nil {
		return problem.New(problem.Unavailable, "the hub's store failed: %w", err).WithRetryAfter(problem.RetrySoon)
	}
	return nil
}
