// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"navix.sh/atoll/e2e/faults/apiproxy"
	"navix.sh/atoll/e2e/faults/proxy"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/pkg/link/linkfaults"
)

const (
	// applied is the interval of users' applies: kubectl takes much of a processor's second.
	applied = 10 * time.Second
	// unacknowledgedFor is the age at which a sandbox without a key can no longer be returned to its caller.
	unacknowledgedFor = 2 * time.Minute
	// silence bounds how long a cluster may hand out nothing; because the others serve when one is broken for good.
	silence = 5 * time.Minute
	// settlePatience bounds the work after the claims.
	settlePatience = 30 * time.Minute
)

// I1, I2, I6: many claims under continuous random faults end with none double, lost or evicted.
func TestClaims(t *testing.T) {
	seed := seeds[0]
	ctx := t.Context()
	s := &scenario{
		world: fed, seed: seed, victim: clusters[0], other: clusters[1], random: rand.New(rand.NewPCG(seed, 0)), patience: patience,
		load: newLoad(fed, fmt.Sprintf("claims-%d-%d", seed, time.Now().UnixNano())), excused: []string{lapsed, deposed, setBack, restored},
		uncounted: true, // some disturbances lose responses to callers
	}
	s.load.limit, s.load.forgets = int64(*claimsFlag), true
	must.Succeed(t, s.keep(ctx))
	begin := time.Now()
	working, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	var broken error
	others.Go(func() { s.reapply(working, rand.New(rand.NewPCG(seed, 1<<32)), applied) })
	others.Go(func() { s.reapOverAndOver(working) })
	others.Go(func() {
		// A claim without faults shows nothing.
		if broken = s.breakOverAndOver(working); broken != nil {
			close(s.load.quit)
		}
	})
	s.load.start(ctx, seed, *crowdFlag)
	s.load.done.Wait()
	took := time.Since(begin)
	stop()
	others.Wait()
	ctx, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	err := errors.Join(broken, s.heal())
	recovery, recoverErr := s.recover(ctx)
	err = errors.Join(err, recoverErr, s.settle(ctx))
	results.add(result{name: fmt.Sprintf("claims in %s", took.Round(time.Second)), seed: seed, recovery: recovery, load: s.load, err: err})
	if err != nil {
		t.Error(err)
	}
}

// reapOverAndOver keeps unacknowledged sandboxes from using up all Pods, and prints progress.
func (s *scenario) reapOverAndOver(ctx context.Context) {
	ticker := time.NewTicker(15 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// A failing API server is read again the next time.
		_ = s.load.reap(ctx, unacknowledgedFor)
		counts := s.load.holdings.Counts()
		fmt.Fprintf(os.Stderr, "faults: %d of %d claims, %d sandboxes, %d double, %d lost, %d evicted, %d unacknowledged\n", s.load.begun.Load(),
			s.load.limit,
			counts.Answered, counts.Doubled, len(s.load.breaches(lost)), len(s.load.breaches(evicted)), s.load.unacknowledged.Load())
	}
}

// breakOverAndOver injects faults one after another.
func (s *scenario) breakOverAndOver(ctx context.Context) error {
	begin := time.Now()
	for ctx.Err() == nil {
		if err := s.load.silent(begin, silence); err != nil {
			return err
		}
		s.victim = clusters[s.random.IntN(len(clusters))]
		what := disturbances[s.random.IntN(len(disturbances))]
		mend, err := what(ctx, s)
		s.between(ctx, 500*time.Millisecond, 6*time.Second)
		if mend != nil {
			err = errors.Join(err, mend())
		}
		if err := errors.Join(err, s.calm()); err != nil && ctx.Err() == nil {
			return err
		}
		s.between(ctx, 500*time.Millisecond, 4*time.Second)
	}
	return nil
}

// disturbance begins a fault. mend ends what calm does not.
type disturbance func(context.Context, *scenario) (mend func() error, err error)

// setting is a disturbance that calm ends.
func setting(set func(*scenario)) disturbance {
	return func(_ context.Context, s *scenario) (func() error, error) {
		set(s)
		return nil, nil
	}
}

var disturbances = []disturbance{
	setting(func(s *scenario) { s.links[s.victim].Set(cut) }),
	setting(func(s *scenario) { s.links[s.victim].Set(proxy.Both(proxy.Way{Swallow: true})) }),
	setting(func(s *scenario) { s.links[s.victim].Set(proxy.Both(proxy.Way{Stall: true})) }),
	setting(func(s *scenario) { s.ways[s.victim].Set(cut) }),
	setting(func(s *scenario) {
		s.ways[s.victim].Set(proxy.Both(proxy.Way{Delay: 300 * time.Millisecond, BytesPerSecond: 200_000}))
	}),
	setting(func(s *scenario) {
		s.callers.Set(proxy.Faults{Cut: s.random.IntN(2) == 0, Down: proxy.Way{Swallow: true}})
	}),
	setting(func(s *scenario) { s.servers[s.victim].Set(apiproxy.Rule{Refuse: true, Chance: 0.5}) }),
	setting(func(s *scenario) {
		s.servers[s.victim].Set(apiproxy.Rule{Methods: []string{http.MethodPatch}, Path: "/pods/", LoseAnswer: true, Chance: 0.3})
	}),
	setting(func(s *scenario) {
		s.servers[s.victim].Set(apiproxy.Rule{Methods: []string{http.MethodPatch}, Path: "/pods/", Delay: 4 * time.Second, Late: true,
			Chance: 0.3})
	}),
	func(_ context.Context, s *scenario) (func() error, error) {
		rule := linkfaults.Rule{Drop: 0.03, Duplicate: 0.1, Swap: 0.1}
		return nil, errors.Join(s.spoil(stack.Hub, s.random.Uint64(), rule), s.spoil(s.victim, s.random.Uint64(), rule))
	},
	func(_ context.Context, s *scenario) (func() error, error) {
		return nil, s.spoil(stack.Hub, s.random.Uint64(), linkfaults.Rule{Kinds: []string{"dispatch"}, DelayMillis: 3000})
	},
	func(_ context.Context, s *scenario) (func() error, error) {
		return nil, s.spoil(s.victim, s.random.Uint64(), linkfaults.Rule{Kinds: []string{"answer"}, Drop: 0.5})
	},
	func(_ context.Context, s *scenario) (func() error, error) {
		var errs []error
		for _, name := range names() {
			errs = append(errs, s.setClock(name, time.Duration(s.random.IntN(1201)-600)*time.Second))
		}
		return nil, errors.Join(errs...)
	},
	func(ctx context.Context, s *scenario) (func() error, error) { return nil, s.hubProgram().crash(ctx) },
	func(ctx context.Context, s *scenario) (func() error, error) {
		return nil, s.programs[s.victim].crash(ctx)
	},
	func(_ context.Context, s *scenario) (func() error, error) {
		return s.hubProgram().resume, s.hubProgram().pause()
	},
	func(_ context.Context, s *scenario) (func() error, error) {
		return s.programs[s.victim].resume, s.programs[s.victim].pause()
	},
	func(_ context.Context, s *scenario) (func() error, error) {
		return s.Cluster(s.victim).Resume, s.Cluster(s.victim).Pause()
	},
	func(_ context.Context, s *scenario) (func() error, error) {
		disk, ok := s.hubProgram().program.(stack.FullDisk)
		if !ok {
			return nil, errNoFullDisk
		}
		return func() error { return disk.LimitFiles(-1) }, disk.LimitFiles(32 << 10)
	},
	func(ctx context.Context, s *scenario) (func() error, error) {
		backup, begun := s.backupName("etcd"), time.Now()
		restore := func() error {
			// Even if the claims have ended meanwhile.
			err := s.set.Plane(s.victim).Restore(context.WithoutCancel(ctx), backup)
			s.load.excuse("claimed after the backup", s.victim, begun)
			return errors.Join(err, os.RemoveAll(backup))
		}
		return restore, s.set.Plane(s.victim).Backup(backup)
	},
}
