// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/faults/proxy"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link/linkfaults"
)

// partition cuts a worker off from the hub. Its cluster serves local callers (I8), the others serve all (I7).
func partition(ctx context.Context, s *scenario) error {
	s.links[s.victim].Set(cut)
	s.between(ctx, 4*time.Second, 10*time.Second)
	if err := s.wantServed(ctx, s.other, s.victim+" is cut off"); err != nil {
		return err
	}
	if err := s.wantServedLocally(ctx); err != nil {
		return err
	}
	return s.heal()
}

// wantServedLocally claims and releases at the victim's own address.
func (s *scenario) wantServedLocally(ctx context.Context) error {
	local, err := s.WorkerClient(s.victim)
	if err != nil {
		return err
	}
	return wait.Until(ctx, unharmed, "I8: "+s.victim+" to serve its own callers", func(ctx context.Context) error {
		sandbox, err := s.load.caller().Claim(ctx, local, request(""))
		if err != nil {
			return err
		}
		return s.load.caller().Release(ctx, local, sandbox)
	})
}

// halfOpen loses frames of a link in one direction or both, without an error at either end.
func halfOpen(ctx context.Context, s *scenario) error {
	vanish := proxy.Way{Swallow: true}
	ways := []struct {
		name   string
		faults proxy.Faults
	}{{"both ways", proxy.Both(vanish)}, {"to the hub", proxy.Faults{Up: vanish}}, {"from the hub", proxy.Faults{Down: vanish}}}
	way := ways[s.seed%uint64(len(ways))]
	s.details = " " + way.name
	s.links[s.victim].Set(way.faults)
	if err := s.wantServed(ctx, s.other, "the link of "+s.victim+" is half open"); err != nil {
		return err
	}
	if err := s.waitState(ctx, s.victim, sandboxv1.ClusterState_SUSPECT, sandboxv1.ClusterState_UNREACHABLE); err != nil {
		return err
	}
	s.between(ctx, 0, 5*time.Second)
	return s.heal()
}

// longPartition lasts until the hub has given the cluster up, while both sides keep working.
func longPartition(ctx context.Context, s *scenario) error {
	s.links[s.victim].Set(cut)
	if err := s.waitState(ctx, s.victim, sandboxv1.ClusterState_UNREACHABLE); err != nil {
		return err
	}
	if err := s.apply(ctx, s.victim, envName, *podsFlag+2); err != nil {
		return err
	}
	if err := s.wantServedLocally(ctx); err != nil {
		return err
	}
	s.between(ctx, 0, 5*time.Second)
	return s.heal()
}

// answerLost loses a worker's responses, while it carries out the claims and the stream continues.
func answerLost(ctx context.Context, s *scenario) error {
	key := s.load.name + "-unheard"
	if err := s.spoil(s.victim, s.seed, linkfaults.Rule{Kinds: []string{"answer"}, Drop: 1}); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	if sandbox, err := s.load.create(short, request(key, s.victim)); err == nil {
		return fmt.Errorf("%s was answered though answers get lost", sandbox.GetId())
	}
	written, err := s.podWith(ctx, s.victim, key)
	if err != nil {
		return err
	}
	s.between(ctx, 0, 4*time.Second)
	if err := s.heal(); err != nil {
		return err
	}
	return s.wantAnswered(ctx, key, written)
}

// framesSpoiled loses, repeats and swaps frames of both ends, which no connection does.
func framesSpoiled(ctx context.Context, s *scenario) error {
	rule := linkfaults.Rule{Drop: 0.03, Duplicate: 0.1, Swap: 0.1}
	for _, name := range []string{stack.Hub, s.victim} {
		if err := s.spoil(name, s.seed, rule); err != nil {
			return err
		}
	}
	s.between(ctx, 15*time.Second, 20*time.Second)
	return s.heal()
}

// lateDispatch holds calls of the hub back until their callers have gone elsewhere, or have timed out.
func lateDispatch(ctx context.Context, s *scenario) error {
	late := time.Duration(4+s.random.IntN(20)) * time.Second
	s.details = fmt.Sprintf(" by %s", late)
	rule := linkfaults.Rule{Kinds: []string{"dispatch"}, DelayMillis: late.Milliseconds()}
	if err := s.spoil(stack.Hub, s.seed, rule); err != nil {
		return err
	}
	s.between(ctx, 6*time.Second, 10*time.Second)
	if err := s.heal(); err != nil {
		return err
	}
	// The held calls arrive after all.
	linger(ctx, late)
	return nil
}
