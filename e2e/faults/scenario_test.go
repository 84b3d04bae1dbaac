// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/faults/proxy"
	"navix.sh/atoll/e2e/wait"
)

// runLimit bounds one run. Only a run that hangs comes near it, and the one that waits for a lease so often.
const runLimit = 90 * time.Minute

// scenario is one run of a fault.
type scenario struct {
	*world
	random *rand.Rand
	seed   uint64
	load   *load
	victim string // the cluster with the fault, if any
	other  string
	kept   []*sandboxv1.Sandbox

	further    []*program    // workers besides those of the world
	excused    []string      // the reasons why a worker may exit
	loses      bool          // responses
	lostBefore int64         // responses to claims that were lost before the run
	uncounted  bool          // responses get lost where no program counts them
	patience   time.Duration // with the recovery
	healed     time.Time
	details    string // of the fault, under this seed
}

// run injects and heals a fault under a load.
func (f fault) run(t *testing.T, seed uint64) {
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	random := rand.New(rand.NewPCG(seed, uint64(f.number)))
	hit := random.IntN(len(clusters))
	s := &scenario{
		world: fed, random: random, seed: seed, victim: clusters[hit], other: clusters[1-hit],
		patience: patience, load: newLoad(fed, fmt.Sprintf("%s-%d-%d", f.name, seed, time.Now().UnixNano())), excused: f.ends, loses: f.loses,
	}
	defer func() {
		if err := s.calm(); err != nil {
			t.Error(err)
		}
	}()
	var err error
	if s.loses {
		s.lostBefore, err = s.undelivered(ctx)
	}
	endLoad := s.beginLoad(ctx)
	if err == nil {
		err = s.keep(ctx)
	}
	if err == nil {
		err = f.inject(ctx, s)
	}
	recovery, recoverErr := s.recover(ctx)
	endLoad()
	err = errors.Join(err, recoverErr, s.settle(ctx))
	results.add(result{number: f.number, name: f.name, seed: seed, details: s.victim + s.details, recovery: recovery, load: s.load, err: err})
	if err != nil {
		t.Error(err)
	}
}

// beginLoad starts callers and users, and returns a function that stops them.
func (s *scenario) beginLoad(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var users sync.WaitGroup
	random := rand.New(rand.NewPCG(s.seed, 1<<32))
	users.Go(func() { s.reapply(ctx, random, 2*time.Second) })
	s.load.start(ctx, s.seed, callers)
	return func() {
		s.load.stop()
		cancel()
		users.Wait()
	}
}

// keep claims the sandboxes that are held throughout: one with a key and one without in each cluster.
func (s *scenario) keep(ctx context.Context) error {
	for _, cluster := range clusters {
		for _, key := range []string{"", s.load.name + "-kept-" + cluster} {
			if _, err := s.claimKept(ctx, key, cluster); err != nil {
				return fmt.Errorf("claiming what is to be kept: %w", err)
			}
		}
	}
	return nil
}

// claimKept claims a sandbox in a cluster that is held to the end.
func (s *scenario) claimKept(ctx context.Context, key, cluster string) (*sandboxv1.Sandbox, error) {
	sandbox, err := s.load.claim(ctx, request(key, cluster))
	if err == nil {
		s.kept = append(s.kept, sandbox)
	}
	return sandbox, err
}

// between waits for a random time between two bounds.
func (s *scenario) between(ctx context.Context, least, most time.Duration) {
	linger(ctx, least+time.Duration(s.random.Int64N(int64(most-least))))
}

// heal ends the injected fault, and begins the measurement.
func (s *scenario) heal() error {
	s.healed = time.Now()
	return s.calm()
}

// recover waits until everything is healthy, and returns how long after the heal that was.
func (s *scenario) recover(ctx context.Context) (time.Duration, error) {
	if s.healed.IsZero() {
		s.healed = time.Now()
	}
	for i, cluster := range clusters {
		key := fmt.Sprintf("%s-recovered-%d", s.load.name, i)
		err := wait.Until(ctx, s.patience, cluster+" to serve again", func(ctx context.Context) error {
			if err := s.wantState(ctx, cluster, sandboxv1.ClusterState_FRESH); err != nil {
				return err
			}
			sandbox, err := s.load.create(ctx, request(key, cluster))
			if err != nil {
				return err
			}
			s.load.holdings.Answered(sandbox)
			s.kept = append(s.kept, sandbox)
			return nil
		})
		if err != nil {
			return time.Since(s.healed), err
		}
	}
	return time.Since(s.healed), nil
}

// wantState waits until the hub sees a cluster in one of the states.
func (s *scenario) wantState(ctx context.Context, cluster string, states ...sandboxv1.ClusterState) error {
	c, err := s.hub.GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: cluster})
	seen := fmt.Sprintf("cluster %s, %s (%s), want %v", cluster, c.GetState(), c.GetMessage(), states)
	return errors.Join(err, wait.If(slices.Contains(states, c.GetState()), seen))
}

func (s *scenario) waitState(ctx context.Context, cluster string, states ...sandboxv1.ClusterState) error {
	return wait.Until(ctx, patience, "the hub to notice", func(ctx context.Context) error { return s.wantState(ctx, cluster, states...) })
}

// wantServed checks that claims for a cluster succeed as if other clusters had no fault (I7).
func (s *scenario) wantServed(ctx context.Context, cluster, while string) error {
	for _, key := range []string{"", fmt.Sprintf("%s-served-%d", s.load.name, time.Now().UnixNano())} {
		begin := time.Now()
		sandbox, err := s.load.create(ctx, request(key, cluster))
		if err != nil {
			return fmt.Errorf("I7: while %s, %s did not serve: %w", while, cluster, err)
		}
		s.load.holdings.Answered(sandbox)
		s.kept = append(s.kept, sandbox)
		if took := time.Since(begin); took > unharmed {
			return fmt.Errorf("I7: while %s, %s took %s", while, cluster, took)
		}
	}
	return nil
}

// cut is a partition.
var cut = proxy.Faults{Cut: true}

// settle ends the run: the kept sandboxes exist and are released; no other sandbox is left; all views agree.
func (s *scenario) settle(ctx context.Context) error {
	for _, cluster := range clusters {
		if err := s.apply(ctx, cluster, envName, *podsFlag); err != nil {
			return err
		}
	}
	for _, sandbox := range s.kept {
		s.load.mustBeThere(ctx, sandbox)
	}
	s.load.giveBack(ctx)
	died, err := s.deaths()
	orphans := func(ctx context.Context) (int64, error) { return s.orphans(ctx, died) }
	errs := []error{err, s.load.wantNoOther(ctx, orphans), s.wantRecorded(ctx), s.warm(ctx), s.Verify(ctx)}
	errs = append(errs, s.load.verdict()...)
	return errors.Join(errs...)
}

// orphans returns how many sandboxes without a key the run may have left. A program that died does not know what was lost.
func (s *scenario) orphans(ctx context.Context, died bool) (most int64, err error) {
	switch {
	case died || s.uncounted:
		return math.MaxInt64, nil
	case s.loses:
		most, err = s.undelivered(ctx)
		return most - s.lostBefore, err
	}
	return 0, nil
}

// deaths reports whether a program was killed or exited. An exit is an error, unless it is a worker's for a reason of the fault.
func (s *scenario) deaths() (died bool, err error) {
	var errs []error
	for _, p := range append(slices.Collect(maps.Values(s.programs)), s.further...) {
		times, ends := p.deaths()
		died = died || times > 0
		s.load.restarts += len(ends)
		for _, end := range ends {
			because := func(why string) bool { return strings.Contains(end, why) }
			if !slices.Contains(s.further, p) && !s.isWorker(p) || !slices.ContainsFunc(s.excused, because) {
				errs = append(errs, fmt.Errorf("ended by itself: %s", end))
			}
		}
	}
	return died, errors.Join(errs...)
}

func (s *scenario) isWorker(p *program) bool {
	return slices.ContainsFunc(clusters, func(cluster string) bool { return s.programs[cluster] == p })
}
