// SPDX-License-Identifier: Apache-2.0

package segments

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/worker/internal/claim"
)

// marks is the set of Envs that may differ from what was reported. While there is no stream, it is closed and keeps nothing, because a new
// stream checks all Envs.
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

// Claims provides the numbers of waiting claims.
type Claims interface {
	Stats(pool types.NamespacedName) (claim.Stats, bool)
}

// Inventory is the index over the cluster's Pods.
type Inventory interface {
	// OnChange registers a callback for changes of a pool's Stats. The callback must not block.
	OnChange(changed func(pool types.NamespacedName))
}

// Outlooks are the autoscaler's outlooks on pools.
type Outlooks interface {
	// Outlook returns whether a pool can grow, and how long it is saturated.
	Outlook(pool types.NamespacedName) (canGrow bool, saturated time.Duration)
	// OnOutlook registers a callback for changes of a pool's Outlook. The callback must not block.
	OnOutlook(changed func(pool types.NamespacedName))
}

// noOutlooks is the Outlooks of a worker without an autoscaler: no pool grows.
type noOutlooks struct{}

func (noOutlooks) Outlook(types.NamespacedName) (bool, time.Duration) { return false, 0 }
func (noOutlooks) OnOutlook(func(types.NamespacedName))               {}

// Options configure a Source.
type Options struct {
	Cache     client.Reader
	ClusterID string
	Claims    Claims
	Inventory Inventory
	Outlooks  Outlooks // nil without an autoscaler
	// Paused reports whether another controller manages a pool; nil if there is none.
	Paused func(*v1alpha1.SandboxPool) bool
}

// Source builds segments from the caches and the inventory.
type Source struct {
	Options
	dirty *marks
	owner sync.Map // of a pool: types.NamespacedName → segment.Key
}

// New returns a Source.
func New(o Options) *Source {
	if o.Outlooks == nil {
		o.Outlooks = noOutlooks{}
	}
	return &Source{Options: o, dirty: newMarks()}
}

// Mark marks an Env: it may differ from what was reported.
func (s *Source) Mark(k segment.Key) { s.dirty.mark(k) }

// SetOpen drops all marks. While closed, no marks are kept.
func (s *Source) SetOpen(open bool) { s.dirty.setOpen(open) }

// Marked returns a channel that has a token when an Env was marked.
func (s *Source) Marked() <-chan struct{} { return s.dirty.wake }

// Take returns the marked Envs and unmarks them.
func (s *Source) Take() map[segment.Key]struct{} { return s.dirty.take() }

// Watch marks Envs on events of Envs, of pools and of the inventory.
func (s *Source) Watch(ctx context.Context, informers cache.Informers) error {
	envs, err := informers.GetInformer(ctx, &v1alpha1.SandboxEnv{})
	if err != nil {
		return fmt.Errorf("watching envs: %w", err)
	}
	if _, err := envs.AddEventHandler(onAny(func(o client.Object, _ bool) {
		s.Mark(segment.Key{Namespace: o.GetNamespace(), Name: o.GetName()})
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
	s.Inventory.OnChange(s.markOwner)
	s.Outlooks.OnOutlook(s.markOwner)
	return nil
}

func (s *Source) poolEvent(o client.Object, gone bool) {
	pool := client.ObjectKeyFromObject(o)
	s.markOwner(pool) // the previous one, if the label has changed
	if gone {
		s.owner.Delete(pool)
		return
	}
	s.owner.Store(pool, envOf(o))
	s.markOwner(pool)
}

func (s *Source) markOwner(pool types.NamespacedName) {
	if env, ok := s.owner.Load(pool); ok {
		s.Mark(env.(segment.Key))
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

// Segment returns the segment of an Env, or nil if the synced cache does not have the Env.
func (s *Source) Segment(ctx context.Context, k segment.Key) (*segment.Segment, error) {
	env := &v1alpha1.SandboxEnv{}
	err := s.Cache.Get(ctx, types.NamespacedName{Namespace: k.Namespace, Name: k.Name}, env)
	if apierrors.IsNotFound(err) {
		env, err = s.standalone(ctx, k)
	}
	if err != nil {
		return nil, fmt.Errorf("reading env %s: %w", k, err)
	}
	if env == nil {
		return nil, nil
	}
	return s.describe(ctx, env)
}

// All returns every local segment.
func (s *Source) All(ctx context.Context) ([]*segment.Segment, error) {
	envs := &v1alpha1.SandboxEnvList{}
	// The listed objects are only read.
	if err := s.Cache.List(ctx, envs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing envs: %w", err)
	}
	out := make([]*segment.Segment, 0, len(envs.Items))
	for i := range envs.Items {
		one, err := s.describe(ctx, &envs.Items[i])
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return s.addStandalone(ctx, out)
}

// MarkAll marks every Env, including those that were reported and may be gone.
func (s *Source) MarkAll(ctx context.Context, reported []segment.Key) error {
	envs := &v1alpha1.SandboxEnvList{}
	if err := s.Cache.List(ctx, envs, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing envs: %w", err)
	}
	for i := range envs.Items {
		s.Mark(segment.Key{Namespace: envs.Items[i].Namespace, Name: envs.Items[i].Name})
	}
	for _, k := range reported {
		s.Mark(k)
	}
	return s.markStandalone(ctx)
}

func (s *Source) describe(ctx context.Context, env *v1alpha1.SandboxEnv) (*segment.Segment, error) {
	var failed error
	out := segmentOf(env, s.ClusterID, func(name string) poolFacts {
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

func (s *Source) pool(ctx context.Context, name types.NamespacedName) (poolFacts, error) {
	pool := &v1alpha1.SandboxPool{}
	err := s.Cache.Get(ctx, name, pool)
	if apierrors.IsNotFound(err) {
		return poolFacts{}, nil
	}
	if err != nil {
		return poolFacts{}, fmt.Errorf("reading pool %s: %w", name, err)
	}
	facts := poolFacts{pool: pool, paused: s.Paused != nil && s.Paused(pool)}
	facts.canGrow, facts.saturated = s.Outlooks.Outlook(name)
	if stats, ok := s.Claims.Stats(name); ok {
		facts.readyIdle, facts.claiming = stats.ReadyIdle, stats.Claiming
		facts.waiting, facts.queueCapacity = stats.Waiting, stats.WaitCapacity
	}
	return facts, nil
}
