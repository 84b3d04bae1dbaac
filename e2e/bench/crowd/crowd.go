// SPDX-License-Identifier: Apache-2.0

package crowd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// World describes all clusters: each has the same number of Envs, with one pool each, and shares them with a few others.
type World struct {
	Clusters, Envs int
	Shared         int // clusters that have an Env
	First          int // number of the first cluster, a multiple of Shared; another World may have the lower numbers
	Members        int // of each Env in each cluster; 0: one
	Pods           int // of each cluster, over its members; 0: 120 of each member
}

// ID returns a cluster's name.
func (w World) ID(cluster int) string { return fmt.Sprintf("c%04d", w.First+cluster) }

// Env returns the name of a cluster's n-th Env.
func (w World) Env(cluster, n int) string {
	return fmt.Sprintf("env-%06d", (w.First+cluster)/w.Shared*w.Envs+n)
}

// Segment is a cluster's part of its n-th Env. Its counts change with the round.
func (w World) Segment(cluster, n, round int) *federationv1.EnvSegment {
	env := w.Env(cluster, n)
	if w.Members > 0 {
		return w.counted(cluster, n, round)
	}
	return &federationv1.EnvSegment{
		Key: &federationv1.EnvKey{Namespace: "default", Name: env}, Uid: fmt.Sprintf("6f9619ff-8b86-d011-b42d-%05d%07d", w.First+cluster, n),
		Generation: 3, Template: "python", DefaultInstanceType: "small", DefaultMultiplier: 1,
		Members: []*federationv1.MemberSegment{{
			Name: env + "-small", InstanceType: "small", Multiplier: 1, Image: "registry.example.com/sandbox/python:3.13",
			State: federationv1.MemberState_ACTIVE, Idle: 20, ReadyIdle: int32(10 + round%10), Running: int32(100 + round%1000),
			Desired: 120, Current: 120, QueueCapacity: 100, CanGrow: true,
		}},
	}
}

// instanceTypes name the members of an Env.
var instanceTypes = [...]string{"small", "medium", "large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge"}

// MaxMembers is the most members that an Env of a World may have in a cluster.
const MaxMembers = len(instanceTypes)

// counted is a segment with the cluster's share of Pods. In odd rounds one of two or more has been claimed, so that a member may have
// none left.
func (w World) counted(cluster, n, round int) *federationv1.EnvSegment {
	env := w.Env(cluster, n)
	pods := w.Pods*(n+1)/w.Envs - w.Pods*n/w.Envs
	claimed := round%2 == 1 && pods > 1
	out := &federationv1.EnvSegment{
		Key: &federationv1.EnvKey{Namespace: "default", Name: env}, Uid: fmt.Sprintf("6f9619ff-8b86-d011-b42d-%05d%07d", w.First+cluster, n),
		Generation: 3, Template: "python", DefaultInstanceType: instanceTypes[0], DefaultMultiplier: 1,
	}
	for i := range w.Members {
		m := &federationv1.MemberSegment{
			Name: env + "-" + instanceTypes[i], InstanceType: instanceTypes[i], Multiplier: 1, Image: "registry.example.com/sandbox/python:3.13",
			State: federationv1.MemberState_ACTIVE, QueueCapacity: 100, CanGrow: true,
		}
		share := int32(pods / w.Members)
		if i < pods%w.Members {
			share++
		}
		m.Idle, m.Desired, m.Current = share, share, share
		if claimed && share > 0 {
			claimed = false
			m.Idle, m.Running = share-1, 1
		}
		m.ReadyIdle = m.Idle
		out.Members = append(out.Members, m)
	}
	return out
}

// Segments returns all segments of a cluster.
func (w World) Segments(cluster int) []*federationv1.EnvSegment {
	out := make([]*federationv1.EnvSegment, w.Envs)
	for n := range out {
		out[n] = w.Segment(cluster, n, 0)
	}
	return out
}

// Crowd is one worker for each cluster of a world.
type Crowd struct {
	World   World
	Workers []*Worker

	rounds []int // of reports, by worker; each has its own goroutine

	mu       sync.Mutex
	awaited  int
	began    time.Time
	arrivals []time.Duration
	all      chan struct{}
}

// Gather starts the workers with the given options, and returns when the hub has applied all their reports.
func Gather(ctx context.Context, w World, options func(cluster int) (Options, error)) (*Crowd, error) {
	c, err := Prepare(w, options)
	if err != nil {
		return nil, err
	}
	done := c.Expect(time.Now())
	c.Start()
	select {
	case <-done:
		return c, nil
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("gathering %d workers: %w", w.Clusters, context.Cause(ctx)), c.Stop())
	}
}

// Prepare returns the workers with the given options, not yet started.
func Prepare(w World, options func(cluster int) (Options, error)) (*Crowd, error) {
	c := &Crowd{World: w, rounds: make([]int, w.Clusters)}
	for i := range w.Clusters {
		o, err := options(i)
		if err != nil {
			return nil, err
		}
		o.ID, o.Envs, o.Fresh = w.ID(i), w.Segments(i), c.arrive
		worker, err := New(o)
		if err != nil {
			return nil, err
		}
		c.Workers = append(c.Workers, worker)
	}
	return c, nil
}

// Start starts all workers at once.
func (c *Crowd) Start() {
	for _, w := range c.Workers {
		w.Start()
	}
}

// Expect times the first report of every worker's next stream from begin. The channel closes when the hub has applied all.
func (c *Crowd) Expect(begin time.Time) <-chan struct{} { return c.ExpectSome(begin, c.World.Clusters) }

// ExpectSome is Expect for so many workers, whichever they are.
func (c *Crowd) ExpectSome(begin time.Time, n int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaited, c.began, c.arrivals, c.all = n, begin, nil, make(chan struct{})
	return c.all
}

// Begin moves the start of the times.
func (c *Crowd) Begin(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began = at
}

func (c *Crowd) arrive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.awaited == 0 {
		return
	}
	c.arrivals = append(c.arrivals, time.Since(c.began))
	if c.awaited--; c.awaited == 0 {
		close(c.all)
	}
}

// Arrivals returns the times since Begin.
func (c *Crowd) Arrivals() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.arrivals
}

// Stop ends all workers.
func (c *Crowd) Stop() error {
	for _, w := range c.Workers {
		w.end()
	}
	var errs []error
	for _, w := range c.Workers {
		errs = append(errs, w.Stop())
	}
	return errors.Join(errs...)
}

// Upgrade replaces the workers one after the other, as a rolling upgrade does: each by another leader, whose first report the hub has
// applied before the next one goes.
func (c *Crowd) Upgrade(ctx context.Context) error {
	for _, w := range c.Workers {
		done := c.ExpectSome(time.Now(), 1)
		if err := w.Succeed(); err != nil {
			return fmt.Errorf("replacing the worker of %s: %w", w.opts.ID, err)
		}
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("replacing the worker of %s: %w", w.opts.ID, context.Cause(ctx))
		}
	}
	return nil
}

// Report makes every worker report changes of n Envs at each interval, spread evenly over it, until stopped. A worker without a
// stream skips the report; stop returns how often that happened.
func (c *Crowd) Report(interval time.Duration, n int, count *atomic.Int64) (stop func() (left int64)) {
	done := make(chan struct{})
	var reporting sync.WaitGroup
	var left atomic.Int64
	for i, w := range c.Workers {
		reporting.Go(func() {
			timer := time.NewTimer(interval * time.Duration(i) / time.Duration(len(c.Workers)))
			defer timer.Stop()
			for {
				select {
				case <-done:
					return
				case <-timer.C:
					timer.Reset(interval)
				}
				c.rounds[i]++
				var changed []*federationv1.EnvSegment
				for j := range n {
					changed = append(changed, c.World.Segment(i, (c.rounds[i]*n+j)%c.World.Envs, c.rounds[i]))
				}
				if w.Report(changed...) != nil {
					left.Add(1)
				} else {
					count.Add(1)
				}
			}
		})
	}
	return func() int64 {
		close(done)
		reporting.Wait()
		return left.Load()
	}
}
