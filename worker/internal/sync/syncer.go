// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/segment"
)

const (
	// patience is how long a hub may be disconnected before Envs show it.
	patience = 15 * time.Second
	// absence is how long an Env must be gone before its reported segments are dropped.
	absence = time.Minute
)

// Options configure a Syncer.
type Options struct {
	ClusterID string
	// Config is a configuration with the identity of the sync path's ServiceAccount.
	Config *rest.Config
	// Cache provides the Envs.
	Cache cache.Cache
	// Cause returns why no hub is connected, or "" if the worker does not know. A nil function never knows.
	Cause   func() string
	Clock   clock.Clock
	Metrics prometheus.Registerer
	Log     logr.Logger
}

// Syncer shows other clusters' segments in the status of the local Envs.
type Syncer struct {
	opts    Options
	applier applier
	metrics *metrics
	wake    chan struct{}

	mu        sync.Mutex
	foreign   *foreign
	budget    *budget
	connected bool
	since     time.Time // of the last change of connected
	shown     hubState  // for which Envs were last marked, including the cause
	cause     string
	absent    map[segment.Key]time.Time
	// gaps has the gaps of the last decision about each Env. due is when its next decision is due without an event.
	gaps map[segment.Key]map[gap]time.Time
	due  map[segment.Key]time.Time
}

var _ manager.LeaderElectionRunnable = (*Syncer)(nil)

// New returns a Syncer that watches the cache's Envs. Add it to a manager only if the worker has a hub.
func New(ctx context.Context, opts Options) (*Syncer, error) {
	applier, err := newApplier(opts.Config)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(opts.Metrics)
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	if opts.Cause == nil {
		opts.Cause = func() string { return "" }
	}
	now := opts.Clock.Now()
	s := &Syncer{
		opts: opts, applier: applier, metrics: m, wake: make(chan struct{}, 1),
		foreign: newForeign(), budget: newBudget(now), since: now, shown: hubPending, absent: map[segment.Key]time.Time{},
		gaps: map[segment.Key]map[gap]time.Time{}, due: map[segment.Key]time.Time{},
	}
	envs, err := opts.Cache.GetInformer(ctx, &v1alpha1.SandboxEnv{})
	if err != nil {
		return nil, fmt.Errorf("watching envs: %w", err)
	}
	_, err = envs.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.seen(nil, o.(*v1alpha1.SandboxEnv)) },
		UpdateFunc: func(old, o any) { s.seen(old.(*v1alpha1.SandboxEnv), o.(*v1alpha1.SandboxEnv)) },
		DeleteFunc: s.deleted,
	})
	if err != nil {
		return nil, fmt.Errorf("watching envs: %w", err)
	}
	return s, nil
}

// NeedLeaderElection returns true: one process writes for its cluster.
func (s *Syncer) NeedLeaderElection() bool { return true }

// Connected sets whether a hub is connected. It does not block.
func (s *Syncer) Connected(connected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connected == connected {
		return
	}
	s.connected, s.since = connected, s.opts.Clock.Now()
	if !connected {
		s.foreign.disconnected()
		clear(s.gaps) // patience starts again with the next connection
		clear(s.due)
	}
	s.signal()
}

// CauseChanged makes Envs show the new Cause. It does not block.
func (s *Syncer) CauseChanged() { s.signal() }

// Receive handles a message of the hub about other clusters. It does not block.
func (s *Syncer) Receive(f *federationv1.Foreign) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, before := s.opts.Clock.Now(), s.foreign.unusable
	for k := range s.foreign.receive(f, now) {
		s.budget.mark(k, now)
	}
	if n := s.foreign.unusable - before; n > 0 {
		s.metrics.unusable.Add(float64(n))
		s.opts.Log.Error(s.foreign.lastUnusable, "dropped messages of the hub about other clusters that are not valid", "count", n)
	}
	s.signal()
}

func (s *Syncer) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// seen marks an Env if fields that atoll-sync owns or its spec have changed, or if the Env was recreated. Most changes are none of these.
func (s *Syncer) seen(was, is *v1alpha1.SandboxEnv) {
	if was != nil && was.UID == is.UID && was.Generation == is.Generation && sameForeign(was, is, s.opts.ClusterID) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budget.mark(segment.Key{Namespace: is.Namespace, Name: is.Name}, s.opts.Clock.Now())
	s.signal()
}

// deleted marks the Env, and starts the time after which its segments are dropped.
func (s *Syncer) deleted(o any) {
	key, err := toolscache.DeletionHandlingObjectToName(o)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budget.mark(segment.Key{Namespace: key.Namespace, Name: key.Name}, s.opts.Clock.Now())
	s.signal()
}

// Start writes until ctx ends.
func (s *Syncer) Start(ctx context.Context) error {
	if !s.opts.Cache.WaitForCacheSync(ctx) {
		return nil
	}
	for {
		pause, err := s.step(ctx)
		if err != nil {
			return err
		}
		var timer clock.Timer
		var due <-chan time.Time
		if pause > 0 {
			timer = s.opts.Clock.NewTimer(pause)
			due = timer.C()
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-due:
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// step writes the Envs that may be written. It returns when to call it again at the latest, or 0 for after the next event.
func (s *Syncer) step(ctx context.Context) (pause time.Duration, err error) {
	for ctx.Err() == nil {
		pause, err = s.noteHub(ctx)
		if err != nil {
			return 0, err
		}
		s.mu.Lock()
		now := s.opts.Clock.Now()
		s.forgetAbsent(now)
		pause = shorter(pause, s.markDue(now))
		k, ok, wait := s.budget.next(now)
		s.metrics.dirty.Set(float64(len(s.budget.dirty)))
		s.mu.Unlock()
		if !ok {
			return shorter(pause, wait), nil
		}
		if err := s.write(ctx, k); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// markDue marks the Envs whose next decision is due, and returns when the next one is.
func (s *Syncer) markDue(now time.Time) (pause time.Duration) {
	for k, at := range s.due {
		if left := at.Sub(now); left > 0 {
			pause = shorter(pause, left)
			continue
		}
		delete(s.due, k)
		s.budget.mark(k, now)
	}
	return pause
}

// noteHub marks all Envs if the state of the hub or the list of its clusters has changed. If a cluster was heard of for the first time, it
// marks the Envs with members there. It returns when the state may change next.
func (s *Syncer) noteHub(ctx context.Context) (pause time.Duration, err error) {
	s.mu.Lock()
	state, pause := s.hubState(s.opts.Clock.Now())
	cause := s.opts.Cause()
	changed := state != s.shown || state == hubUnreachable && cause != s.cause
	s.shown, s.cause = state, cause
	about := s.foreign.takeNews()
	s.mu.Unlock()
	about.all = about.all || changed
	if state == hubPending || !about.all && len(about.ids) == 0 {
		return pause, nil
	}
	envs := &v1alpha1.SandboxEnvList{}
	if err := s.opts.Cache.List(ctx, envs, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing envs: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range envs.Items {
		if env := &envs.Items[i]; about.all || about.concern(env) {
			s.budget.mark(segment.Key{Namespace: env.Namespace, Name: env.Name}, s.opts.Clock.Now())
		}
	}
	return pause, nil
}

// concern reports whether an Env has members of one of the clusters.
func (n news) concern(env *v1alpha1.SandboxEnv) bool {
	return slices.ContainsFunc(env.Spec.Clusters, func(c v1alpha1.EnvClusterSpec) bool {
		_, there := n.ids[c.ClusterID]
		return there && len(c.Members) > 0
	})
}

func (s *Syncer) hubState(now time.Time) (hubState, time.Duration) {
	switch left := s.since.Add(patience).Sub(now); {
	case s.connected && s.foreign.synced:
		return hubInSync, 0
	case s.connected:
		return hubPending, 0
	case left > 0:
		return hubPending, left
	default:
		return hubUnreachable, 0
	}
}

// write checks one Env and writes it if that changes its status.
func (s *Syncer) write(ctx context.Context, k segment.Key) error {
	env := &v1alpha1.SandboxEnv{}
	err := s.opts.Cache.Get(ctx, types.NamespacedName{Namespace: k.Namespace, Name: k.Name}, env)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading env %s: %w", k, err)
	}
	s.mu.Lock()
	now := s.opts.Clock.Now()
	s.budget.clean(k) // later marks cause another check
	delete(s.due, k)
	if err != nil {
		s.absent[k] = now
		delete(s.gaps, k)
		s.mu.Unlock()
		return nil
	}
	delete(s.absent, k)
	state, _ := s.hubState(now)
	d := decide(facts{
		local: s.opts.ClusterID, env: env, view: s.foreign.envs[k], known: s.foreign.known, heard: s.foreign.heard,
		registered: s.foreign.registered, gaps: s.gaps[k], hub: state, cause: s.cause, now: now,
	})
	s.remember(k, d, now)
	s.mu.Unlock()
	if !d.write() {
		return nil
	}
	body, err := encode(env, s.opts.ClusterID, d)
	if errors.Is(err, errLocal) {
		s.opts.Log.Error(err, "not written", "env", k.String())
		return nil
	}
	if err == nil {
		err = s.applier.apply(ctx, env, body)
	}
	s.account(k, len(body), d.verdict, err)
	return nil
}

// remember keeps the results of a decision that the Env's next decision needs.
func (s *Syncer) remember(k segment.Key, d decision, now time.Time) {
	if len(d.gaps) == 0 {
		delete(s.gaps, k)
		return
	}
	s.gaps[k] = d.gaps
	if d.again > 0 {
		s.due[k] = now.Add(d.again)
	}
}

// account records a write. A write to an Env that no longer exists counts as done: another Env comes with an event.
func (s *Syncer) account(k segment.Key, size int, why verdict, err error) {
	gone := apierrors.IsNotFound(err) || apierrors.IsConflict(err)
	s.mu.Lock()
	now := s.opts.Clock.Now()
	s.budget.wrote(k, size, now)
	if err != nil && !gone {
		s.budget.mark(k, now)
	}
	s.mu.Unlock()
	result := "written"
	switch {
	case gone:
		result = "gone"
		s.opts.Log.V(1).Info("the env is gone", "env", k.String(), "reason", err.Error())
	case err != nil:
		result = "failed"
		s.opts.Log.Error(err, "cannot write foreign segments, will try again", "env", k.String())
	}
	s.metrics.writes.WithLabelValues(result, string(why)).Inc()
	s.metrics.bytes.Add(float64(size))
}

func (s *Syncer) forgetAbsent(now time.Time) {
	for k, since := range s.absent {
		if now.Sub(since) >= absence {
			s.foreign.forget(k)
			delete(s.absent, k)
		}
	}
}

// sameForeign reports whether two states of an Env agree in the fields that atoll-sync owns.
func sameForeign(a, b *v1alpha1.SandboxEnv, local string) bool {
	if !slices.EqualFunc(presentEntries(a, local), presentEntries(b, local), entry.same) {
		return false
	}
	p := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.SandboxEnvConditionFederated)
	q := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.SandboxEnvConditionFederated)
	return (p == nil) == (q == nil) && (p == nil || *p == *q)
}
