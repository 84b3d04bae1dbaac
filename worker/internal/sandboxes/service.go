// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/keyed"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/history"
	"navix.sh/atoll/worker/internal/idle"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandbox"
)

// Options configure a Service. History is required.
type Options struct {
	History  *history.History
	Activity []idle.LastActiveSource
	// Paused reports pools that another controller manages: their Pods are not deleted. nil means none.
	Paused  func(*v1alpha1.SandboxPool) bool
	Metrics prometheus.Registerer
	Log     logr.Logger
}

// Service manages sandboxes. Its methods are safe for concurrent use.
type Service struct {
	opts       Options
	inventory  *inventory.Inventory
	clusterID  string
	time       *apitime.Clock
	clock      clock.Clock
	metrics    *metrics
	timeouts   *idle.Monitor   // does not call back with its lock held; may be called with the inventory's
	eventReads chan struct{}   // a token for each concurrent read of events
	changes    keyed.Semaphore // by sandbox; concurrent changes would only repeat each other's writes
	guarded    inventory.Guarded[shared]
}

// New returns a Service on an inventory. The inventory runs it.
func New(i *inventory.Inventory, opts Options) (*Service, error) {
	if opts.History == nil {
		return nil, errors.New("sandboxes need a history")
	}
	m, err := newMetrics(opts.Metrics)
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	s := &Service{
		opts: opts, inventory: i, clusterID: i.ClusterID(), time: i.Time(), clock: i.Clock(),
		metrics: m, eventReads: make(chan struct{}, maxEventReads), changes: keyed.Semaphore{AtOnce: 1},
		guarded: inventory.Guard(shared{
			watches: map[string]*watch{}, transitions: map[string]*transition{}, nudged: map[string]bool{}, disposing: map[string]bool{},
			ended: newEndedStore(), feeds: map[*feed]struct{}{},
		}),
	}
	if err := s.registerGauges(opts.Metrics); err != nil {
		return nil, err
	}
	s.timeouts, err = idle.New(idle.Options{
		Clock: i.Clock(), Sources: opts.Activity, End: s.expire, Write: s.writeActive, Metrics: opts.Metrics, Log: opts.Log,
	})
	if err != nil {
		return nil, err
	}
	i.Observe(inventory.Observer{
		Pod:     func(st *inventory.State, c inventory.Change) { s.in(st).changed(&c) },
		Led:     func(st *inventory.State) { s.in(st).led() },
		Retired: func(st *inventory.State) { s.in(st).shutAll(); s.in(st).endFeeds() },
		Run:     s.timeouts.Run,
	})
	return s, nil
}

// InFlight returns the number of sandboxes that callers wait for or that are being disposed of (I10).
func (s *Service) InFlight() (n int) {
	s.update(func(l locked) { n = len(l.watches) + len(l.nudged) + len(l.disposing) })
	return n
}

// changed handles a change of a Pod.
func (l locked) changed(c *inventory.Change) {
	switch c.Kind {
	case inventory.Unpooled:
		l.restorePoolLabel(c)
		return
	case inventory.Gone:
		l.recordGone(c)
		l.feed(c)
	case inventory.Seen:
		l.feed(c)
		if c.Lost {
			l.recordStripped(c)
		}
		l.follow(c.Sandbox, c.Pod)
		l.followTransition(c.Pod.Sandbox(), 0)
		l.wake(c.Pod.Sandbox())
	}
	l.wake(c.Sandbox)
}

// led takes over the sandboxes that existed before this process led.
func (l locked) led() {
	for _, p := range l.Sandboxes() {
		l.takeOver(p)
	}
	l.keepVanished()
	if l.distrust {
		l.timeouts.Renew()
	}
}

// restorePoolLabel restores the pool label of a sandbox's Pod that has lost both its pool's label and its owner, so that the pool finds it.
// Until then the sandbox is shown as it was: it has not ended.
func (l locked) restorePoolLabel(c *inventory.Change) {
	if l.Leading() == nil {
		return
	}
	pod, name := c.View, c.Pod.Pool().Key()
	patch := sandbox.PoolPatch(pod, name.Name)
	l.Go(func(ctx context.Context) {
		if _, err := l.inventory.Client().Patch(ctx, pod, patch); err != nil && inventory.ResultOf(err) != inventory.Lost {
			l.opts.Log.Error(err, "Could not restore the pool label of a sandbox's Pod", "pod", pod.Name, "pool", name)
		}
	})
}

// recordGone records the sandbox of a Pod that is gone. If it has no record yet, the Pod was removed by force.
func (l locked) recordGone(c *inventory.Change) {
	l.timeouts.Forget(c.Sandbox)
	l.shut(c.Sandbox)
	if c.Sandbox != "" {
		record := sandbox.TerminalRecord(c.Before, c.Pod.Pool().Runtimes(), l.clusterID, l.time.Now(), c.Pod.Released())
		l.recordVanished(record, sandbox.Read(c.Before).Claim)
	}
}
