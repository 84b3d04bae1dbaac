// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/segment"
)

// marks are the Envs that may differ from what was reported. While there is no stream, marks are closed and keep nothing, because
// a new stream checks all Envs.
type marks struct {
	wake chan struct{}

	mu   sync.Mutex
	open bool
	keys map[segment.Key]struct{}
}

func newMarks() *marks {
	return &marks{wake: make(chan struct{}, 1), keys: map[segment.Key]struct{}{}}
}

func (m *marks) setOpen(open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = open
	clear(m.keys)
}

func (m *marks) mark(k segment.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open {
		return
	}
	m.keys[k] = struct{}{}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *marks) take() map[segment.Key]struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.keys
	m.keys = make(map[segment.Key]struct{}, len(taken))
	return taken
}

// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxenvs;sandboxpools,verbs=get;list;watch

// source builds segments from the caches and the inventory.
type source struct {
	cache     client.Reader
	clusterID string
	claims    Claims
	inventory Inventory
	outlooks  Outlooks

	// paused reports whether another controller manages a pool; nil: none is.
	paused func(*v1alpha1.SandboxPool) bool
	dirty  *marks
	owner  sync.Map // of a pool: types.NamespacedName → segment.Key
}

// watch marks Envs on events of Envs, of pools and of the inventory.
func (s *source) watch(ctx context.Context, informers cache.Informers) error {
	envs, err := informers.GetInformer(ctx, &v1alpha1.SandboxEnv{})
	if err != nil {
		return fmt.Errorf("watching envs: %w", err)
	}
	if _, err := envs.AddEventHandler(onAny(func(o client.Object, _ bool) {
		s.dirty.mark(segment.Key{Namespace: o.GetNamespace(), Name: o.GetName()})
	})); err != nil {
		return fmt.Errorf("watching envs: %w", err)
	}
	pools, err := informers.GetInformer(ctx, &v1alpha1.SandboxPool{})
	if err != nil {
		return fmt.Errorf("watching pools: %w", err)
	}
	if _, err := pools.AddEventHandler(onAny(s.poolEvent)); err != nil {
		return fmt.Errorf("watching pools: %w", err)
	}
	s.inventory.OnChange(s.markOwner)
	s.outlooks.OnOutlook(s.markOwner)
	return nil
}

func (s *source) poolEvent(o client.Object, gone bool) {
	pool := client.ObjectKeyFromObject(o)
	s.markOwner(pool) // the previous one, if the label has changed
	if gone {
		s.owner.Delete(pool)
		return
	}
	s.owner.Store(pool, envOf(o))
	s.markOwner(pool)
}

func (s *source) markOwner(pool types.NamespacedName) {
	if env, ok := s.owner.Load(pool); ok {
		s.dirty.mark(env.(segment.Key))
	}
}

func onAny(handle func(o client.Object, gone bool)) toolscache.ResourceEventHandlerFuncs {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { handle(o.(client.Object), false) },
		UpdateFunc: func(_, o any) { handle(o.(client.Object), false) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if object, ok := o.(client.Object); ok {
				handle(object, true)
			}
		},
	}
}

// segment returns nil for an Env that the synced cache does not have.
func (s *source) segment(ctx context.Context, k segment.Key) (*segment.Segment, error) {
	env := &v1alpha1.SandboxEnv{}
	err := s.cache.Get(ctx, types.NamespacedName{Namespace: k.Namespace, Name: k.Name}, env)
	if apierrors.IsNotFound(err) {
		env, err = s.standalone(ctx, k)
	}
	if err != nil {
		return nil, fmt.Errorf("reading env %s: %w", k, err)
	}
	if env == nil {
		return nil, nil
	}
	return s.segmentOf(ctx, env)
}

// all returns every local segment.
func (s *source) all(ctx context.Context) ([]*segment.Segment, error) {
	envs := &v1alpha1.SandboxEnvList{}
	// The listed objects are only read.
	if err := s.cache.List(ctx, envs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing envs: %w", err)
	}
	out := make([]*segment.Segment, 0, len(envs.Items))
	for i := range envs.Items {
		one, err := s.segmentOf(ctx, &envs.Items[i])
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return s.addStandalone(ctx, out)
}

// markAll marks every Env, including those that were reported and may be gone.
func (s *source) markAll(ctx context.Context, reported []segment.Key) error {
	envs := &v1alpha1.SandboxEnvList{}
	if err := s.cache.List(ctx, envs, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing envs: %w", err)
	}
	for i := range envs.Items {
		s.dirty.mark(segment.Key{Namespace: envs.Items[i].Namespace, Name: envs.Items[i].Name})
	}
	for _, k := range reported {
		s.dirty.mark(k)
	}
	return s.markStandalone(ctx)
}

func (s *source) segmentOf(ctx context.Context, env *v1alpha1.SandboxEnv) (*segment.Segment, error) {
	var failed error
	out := segmentOf(env, s.clusterID, func(name string) poolFacts {
		facts, err := s.pool(ctx, types.NamespacedName{Namespace: env.Namespace, Name: name})
		if err != nil {
			failed = err
		}
		return facts
	})
	if failed != nil {
		return nil, failed
	}
	return out, nil
}

func (s *source) pool(ctx context.Context, name types.NamespacedName) (poolFacts, error) {
	pool := &v1alpha1.SandboxPool{}
	err := s.cache.Get(ctx, name, pool)
	if apierrors.IsNotFound(err) {
		return poolFacts{}, nil
	}
	if err != nil {
		return poolFacts{}, fmt.Errorf("reading pool %s: %w", name, err)
	}
	facts := poolFacts{pool: pool, paused: s.paused != nil && s.paused(pool)}
	facts.canGrow, facts.saturated = s.outlooks.Outlook(name)
	if stats, ok := s.claims.Stats(name); ok {
		facts.readyIdle, facts.waiting, facts.queueCapacity = stats.ReadyIdle, stats.Waiting, stats.WaitCapacity
	}
	return facts, nil
}

// Segment returns this cluster's part of an Env as it would be reported; nil if it has no member.
func (a *Agent) Segment(ctx context.Context, k segment.Key) (*segment.Segment, error) {
	s, err := a.source.segment(ctx, k)
	if err != nil || s == nil || len(s.Members()) == 0 {
		return nil, err
	}
	return s, nil
}

// Segments returns this cluster's part of every Env that has one.
func (a *Agent) Segments(ctx context.Context) ([]*segment.Segment, error) {
	all, err := a.source.all(ctx)
	return slices.DeleteFunc(all, func(s *segment.Segment) bool { return len(s.Members()) == 0 }), err
}
