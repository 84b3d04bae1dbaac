// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	clusterLease = "atoll-hosted-"  // and the cluster's id: names its replica
	replicaLease = "atoll-hosting-" // and the replica's name: shows that it is alive
	leaseLabel   = "agentbox.navix.sh/hosting"
	// providerLabel is the label of a replica's Lease. Replicas with other providers in the namespace cannot take its clusters.
	providerLabel = "agentbox.navix.sh/hosting-provider"

	shareInterval = 2 * time.Second
	// shareTimeout bounds the total time of one round's requests.
	shareTimeout = 10 * time.Second
	// replicaLife is how long a replica counts as alive after its last sign of life.
	replicaLife = 15 * time.Second
	// forgetReplica is how long a replica's Lease is kept without a sign of life.
	forgetReplica = 10 * time.Minute
)

// Share decides with the other replicas which of them runs which cluster. One Lease per cluster names its replica, and one Lease per
// replica shows that it is alive.
type Share struct {
	client    client.Client // without a cache
	namespace string
	self      string
	provider  string
	clock     clock.WithTicker
	log       logr.Logger

	mu     sync.Mutex
	wanted map[string]*tenure
	seen   map[string]sign // of replicas
}

// sign is a replica's last sign of life.
type sign struct {
	version string
	at      time.Time // by this process's clock, because another's may be wrong (I11)
}

// tenure is a request to run a cluster.
type tenure struct {
	held   bool
	given  chan struct{} // closed when held
	ctx    context.Context
	cancel context.CancelFunc
}

// NewShare returns a Share. self is unique among all replicas. provider names the provider whose clusters are shared.
func NewShare(c client.Client, namespace, self, provider string, clk clock.WithTicker, log logr.Logger) *Share {
	return &Share{client: c, namespace: namespace, self: self, provider: provider, clock: clk, log: log,
		wanted: map[string]*tenure{}, seen: map[string]sign{}}
}

// Hold waits until this replica is to run a cluster. The returned context ends with ctx, or when another replica is to run it. Call release
// when the cluster no longer runs here.
func (s *Share) Hold(ctx context.Context, id string) (context.Context, func(), error) {
	t := &tenure{given: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(ctx)
	s.mu.Lock()
	s.wanted[id] = t
	s.mu.Unlock()
	release := func() {
		t.cancel()
		s.mu.Lock()
		held := t.held
		if s.wanted[id] == t {
			delete(s.wanted, id)
		}
		s.mu.Unlock()
		if held {
			s.giveUp(id)
		}
	}
	select {
	case <-t.given:
		return t.ctx, release, nil
	case <-ctx.Done():
		release()
		return nil, nil, ctx.Err()
	}
}

// Run takes and gives up clusters until ctx ends.
func (s *Share) Run(ctx context.Context) error {
	ticker := s.clock.NewTicker(shareInterval)
	defer ticker.Stop()
	for {
		round, cancel := context.WithTimeout(ctx, shareTimeout)
		if err := s.round(round); err != nil && ctx.Err() == nil {
			s.log.Error(err, "Cannot share clusters with other replicas; keeping those that run here")
		}
		cancel()
		select {
		case <-ticker.C():
		case <-ctx.Done():
			s.leave(ctx)
			return nil
		}
	}
}

// leave lets the other replicas take over immediately.
func (s *Share) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shareTimeout)
	defer cancel()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: replicaLease + s.self}}
	if err := s.client.Delete(ctx, lease); client.IgnoreNotFound(err) != nil {
		s.log.Error(err, "Cannot delete this replica's lease; the others take over when it has expired")
	}
}

// round reads the Leases, and takes and gives up clusters accordingly.
func (s *Share) round(ctx context.Context) error {
	if err := s.renew(ctx); err != nil {
		return err
	}
	list := &coordinationv1.LeaseList{}
	if err := s.client.List(ctx, list, client.InNamespace(s.namespace), client.HasLabels{leaseLabel}); err != nil {
		return fmt.Errorf("listing the leases of hosting replicas: %w", err)
	}
	clusters := map[string]*coordinationv1.Lease{}
	a := assignment{self: s.self, holders: map[string]string{}, alive: map[string]bool{}, apart: map[string]bool{}}
	var gone []*coordinationv1.Lease
	now := s.clock.Now()
	s.mu.Lock()
	found := map[string]bool{}
	for i := range list.Items {
		lease := &list.Items[i]
		value := lease.Labels[leaseLabel]
		if lease.Name == clusterLease+value {
			clusters[value] = lease
			if lease.Spec.HolderIdentity != nil {
				a.holders[value] = *lease.Spec.HolderIdentity
			}
			continue
		}
		found[value] = true
		last, known := s.seen[value]
		if !known || last.version != lease.ResourceVersion {
			last = sign{lease.ResourceVersion, now}
			s.seen[value] = last
		}
		if now.Sub(last.at) < replicaLife && lease.Labels[providerLabel] == s.provider {
			a.alive[value] = true
		} else if now.Sub(last.at) < replicaLife {
			a.apart[value] = true
		}
		if now.Sub(last.at) > forgetReplica {
			gone = append(gone, lease)
		}
	}
	for replica := range s.seen {
		if !found[replica] {
			delete(s.seen, replica)
		}
	}
	for id, t := range s.wanted {
		a.wanted = append(a.wanted, id)
		if holder := a.holders[id]; t.held && holder != s.self {
			s.log.Info("Another replica has a cluster", "cluster", id, "replica", holder)
			t.cancel()
		}
	}
	s.mu.Unlock()
	take, drop := decide(a)
	var errs []error
	for _, id := range take {
		errs = append(errs, s.take(ctx, id, clusters[id]))
	}
	for _, id := range drop {
		s.end(id)
	}
	for id, holder := range a.holders {
		// This replica holds it from earlier, and its worker has ended since.
		if holder == s.self && !s.wants(id) {
			errs = append(errs, s.write(ctx, id, clusters[id], ""))
		} else if holder == s.self {
			s.give(id)
		}
	}
	for _, lease := range gone {
		errs = append(errs, client.IgnoreNotFound(s.client.Delete(ctx, lease)))
	}
	return errors.Join(errs...)
}

// renew renews the Lease that shows that this replica is alive.
func (s *Share) renew(ctx context.Context) error {
	now := metav1.NewMicroTime(s.clock.Now())
	lease := &coordinationv1.Lease{}
	name := client.ObjectKey{Namespace: s.namespace, Name: replicaLease + s.self}
	err := s.client.Get(ctx, name, lease)
	if apierrors.IsNotFound(err) {
		lease.ObjectMeta = metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Labels: map[string]string{
			leaseLabel: s.self, providerLabel: s.provider,
		}}
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = &s.self, &now
		err = s.client.Create(ctx, lease)
	} else if err == nil {
		lease.Spec.RenewTime = &now
		err = s.client.Update(ctx, lease)
	}
	if err != nil {
		return fmt.Errorf("writing lease %s: %w", name, err)
	}
	return nil
}

// take makes this replica the holder of a cluster, unless another one was faster.
func (s *Share) take(ctx context.Context, id string, lease *coordinationv1.Lease) error {
	err := s.write(ctx, id, lease, s.self)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return err
	}
	s.give(id)
	return nil
}

func (s *Share) give(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.wanted[id]; t != nil && !t.held {
		t.held = true
		close(t.given)
	}
}

// end asks the worker of a cluster to stop. Its release then gives the cluster up.
func (s *Share) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.wanted[id]; t != nil {
		t.cancel()
	}
}

func (s *Share) wants(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted[id] != nil
}

// giveUp lets another replica take a cluster.
func (s *Share) giveUp(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), shareTimeout)
	defer cancel()
	lease := &coordinationv1.Lease{}
	err := s.client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: clusterLease + id}, lease)
	if err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == s.self {
		err = s.write(ctx, id, lease, "")
	}
	if client.IgnoreNotFound(err) != nil {
		s.log.Error(err, "Cannot give up a cluster; another replica takes it over later", "cluster", id)
	}
}

// write sets the holder of a cluster. lease is the Lease as read, or nil if there was none.
func (s *Share) write(ctx context.Context, id string, lease *coordinationv1.Lease, holder string) error {
	now := metav1.NewMicroTime(s.clock.Now())
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: clusterLease + id, Labels: map[string]string{leaseLabel: id},
		}}
		lease.Spec.HolderIdentity, lease.Spec.AcquireTime = &holder, &now
		return s.client.Create(ctx, lease)
	}
	lease.Spec.HolderIdentity, lease.Spec.AcquireTime = &holder, &now
	return s.client.Update(ctx, lease)
}
