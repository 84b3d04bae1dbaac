// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/pkg/problem"
)

// replica is one of the hub's, at random.
func (s *scenario) replica() *program {
	return s.programs[s.Hubs()[s.random.IntN(len(s.Hubs()))].String()]
}

// replicaKilled kills one replica after another.
func replicaKilled(ctx context.Context, s *scenario) error {
	for range 4 {
		s.between(ctx, 200*time.Millisecond, 3*time.Second)
		p := s.replica()
		if err := p.kill(); err != nil {
			return err
		}
		s.between(ctx, 0, 3*time.Second)
		if err := s.wantClaimed(ctx, "with a replica down"); err != nil {
			return err
		}
		if err := p.start(ctx); err != nil {
			return err
		}
	}
	return s.heal()
}

// replicaFrozen freezes a replica for long enough that others give it up, or not.
func replicaFrozen(ctx context.Context, s *scenario) error {
	p := s.replica()
	if err := p.pause(); err != nil {
		return err
	}
	s.between(ctx, time.Second, 25*time.Second)
	if err := p.resume(); err != nil {
		return err
	}
	return s.heal()
}

// replicasRolled replaces one replica after the other in order, as an upgrade does.
func replicasRolled(ctx context.Context, s *scenario) error {
	for _, hub := range s.Hubs() {
		p := s.programs[hub.String()]
		if err := p.stop(); err != nil {
			return err
		}
		if err := p.start(ctx); err != nil {
			return err
		}
		s.between(ctx, 0, 2*time.Second)
	}
	return s.heal()
}

// etcdMemberKilled kills one member, which may be the leader.
func etcdMemberKilled(ctx context.Context, s *scenario) error {
	member := s.Etcd()[s.random.IntN(len(s.Etcd()))]
	if err := member.Kill(); err != nil {
		return err
	}
	if err := s.wantClaimed(ctx, "without a member of etcd"); err != nil {
		return err
	}
	s.between(ctx, time.Second, 6*time.Second)
	if err := member.Start(ctx); err != nil {
		return err
	}
	return s.heal()
}

// etcdQuorumLost takes etcd's quorum away. Claims with a key are refused with the reason; those without go on.
func etcdQuorumLost(ctx context.Context, s *scenario) (err error) {
	spared := s.random.IntN(len(s.Etcd()))
	var dead []stack.Program
	for i, member := range s.Etcd() {
		if i != spared {
			dead = append(dead, member)
			err = errors.Join(err, member.Kill())
		}
	}
	if err != nil {
		return err
	}
	s.between(ctx, time.Second, 4*time.Second)
	sandbox, err := s.load.create(ctx, request("", s.victim))
	if err != nil {
		return fmt.Errorf("I7: a claim without a key failed without etcd's quorum: %w", err)
	}
	s.load.holdings.Answered(sandbox)
	s.kept = append(s.kept, sandbox)
	short, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = s.load.create(short, request(s.load.name+"-no-quorum", s.victim))
	if p := problem.FromError(err); err == nil || p.Reason != problem.Unavailable {
		return fmt.Errorf("a claim with a key got %w without etcd's quorum, want %s", err, problem.Unavailable)
	}
	s.between(ctx, time.Second, 8*time.Second)
	group, groupCtx := errgroup.WithContext(ctx) // a member is ready once there is a quorum
	for _, member := range dead {
		group.Go(func() error { return member.Start(groupCtx) })
	}
	return errors.Join(group.Wait(), s.heal())
}

// wantClaimed claims with a key in each cluster, as a caller does that repeats its call.
func (s *scenario) wantClaimed(ctx context.Context, while string) error {
	for _, cluster := range clusters {
		key := fmt.Sprintf("%s-meanwhile-%d", s.load.name, time.Now().UnixNano())
		if _, err := s.claimKept(ctx, key, cluster); err != nil {
			return fmt.Errorf("claiming in %s, %s: %w", cluster, while, err)
		}
	}
	return nil
}
