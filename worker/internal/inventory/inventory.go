// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/allowed"
	"navix.sh/atoll/worker/internal/apitime"
)

// Lease reports whether no other process can lead yet.
type Lease interface{ Held() bool }

// Options configure an Inventory. ClusterID, Client, Lease and Time are required.
type Options struct {
	ClusterID string
	Client    *Client
	// Namespaces are those whose Pods are served; empty means all.
	Namespaces []string
	Lease      Lease
	Time       *apitime.Clock // for written times
	Clock      clock.Clock    // for deadlines
	Log        logr.Logger
}

// Inventory has a State and its lock. Its methods are safe for concurrent use.
type Inventory struct {
	opts    Options
	armed   chan struct{} // closed when an incarnation is set
	setBack chan struct{} // closed when etcd is older than the newest version seen

	mu        sync.Mutex
	state     State
	observers []Observer
	onChange  []func(pool types.NamespacedName)
	synced    []func() bool
}

// Observer receives the changes of an Update before the lock is released. Any of its functions may be nil. None may block.
type Observer struct {
	// Pod is called with each Change.
	Pod func(*State, Change)
	// Pool is called with each pool that was touched: its spec, its idle Pods or its queue have changed.
	Pool func(*State, *Pool)
	// Led is called when this process begins to lead, before every sandbox is reported again as Seen. Retired is called when it no longer
	// leads.
	Led, Retired func(*State)
	// Run runs, without the lock, while this process leads.
	Run func(context.Context)
}

// New returns an Inventory without Pods; see Watch and Start.
func New(opts Options) (*Inventory, error) {
	if opts.ClusterID == "" || opts.Client == nil || opts.Lease == nil || opts.Time == nil {
		return nil, errors.New("an inventory needs a cluster id, a client, a lease and the server's time")
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	i := &Inventory{opts: opts, armed: make(chan struct{}), setBack: make(chan struct{})}
	i.state = newState(i)
	return i, nil
}

// ClusterID returns the id of this cluster.
func (i *Inventory) ClusterID() string { return i.opts.ClusterID }

// Client returns the client of the API server.
func (i *Inventory) Client() *Client { return i.opts.Client }

// Time returns the API server's clock, for written times.
func (i *Inventory) Time() *apitime.Clock { return i.opts.Time }

// Clock returns this process's own clock, for deadlines.
func (i *Inventory) Clock() clock.Clock { return i.opts.Clock }

// LeaseHeld reports whether no other process can lead yet.
func (i *Inventory) LeaseHeld() bool { return i.opts.Lease.Held() }

// Update calls f with the lock held, then passes f's changes to the observers. It notifies listeners after the lock is released.
func (i *Inventory) Update(f func(*State)) {
	for _, tell := range i.update(f) {
		tell()
	}
}

func (i *Inventory) update(f func(*State)) (after []func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f(&i.state)
	return i.state.tell(i.observers, i.onChange)
}

// View calls f with the lock held. f must not modify the state.
func (i *Inventory) View(f func(*View)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f(&i.state.View)
}

// Observe adds an observer. Call it before Watch.
func (i *Inventory) Observe(o Observer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.observers = append(i.observers, o)
}

// OnChange registers f, which is called without the lock when the numbers of a pool have changed, and must not block. Call OnChange before
// Watch.
func (i *Inventory) OnChange(f func(pool types.NamespacedName)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.onChange = append(i.onChange, f)
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=pods/resize,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxenvs;sandboxpools,verbs=list;watch

// Watch feeds the inventory from the manager's informers. Call it before the manager starts.
func (i *Inventory) Watch(ctx context.Context, informers cache.Informers) error {
	for _, w := range []struct {
		object client.Object
		handle toolscache.ResourceEventHandlerFuncs
	}{
		{&v1alpha1.SandboxEnv{}, envHandlers(i)},
		{&v1alpha1.SandboxPool{}, handlers(i, (*State).SetPool, (*State).RemovePool)},
		{&corev1.Node{}, handlers(i, (*State).SetNode, (*State).RemoveNode)},
		{&corev1.Pod{}, handlers(i, (*State).SeeEvent, (*State).Forget)},
	} {
		informer, err := informers.GetInformer(ctx, w.object)
		if err != nil {
			return fmt.Errorf("watching %T: %w", w.object, err)
		}
		registration, err := informer.AddEventHandler(w.handle)
		if err != nil {
			return fmt.Errorf("watching %T: %w", w.object, err)
		}
		i.mu.Lock()
		i.synced = append(i.synced, registration.HasSynced)
		i.mu.Unlock()
	}
	return nil
}

func handlers[T any](i *Inventory, seen, gone func(*State, T)) toolscache.ResourceEventHandlerFuncs {
	on := func(object any, f func(*State, T)) {
		if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = missed.Obj
		}
		if o, ok := object.(T); ok {
			i.Update(func(s *State) { f(s, o) })
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { on(o, seen) },
		UpdateFunc: func(_, o any) { on(o, seen) },
		DeleteFunc: func(o any) { on(o, gone) },
	}
}

// envHandlers passes on what Envs allow. Changes of their status, which are frequent, do not take the lock.
func envHandlers(i *Inventory) toolscache.ResourceEventHandlerFuncs {
	h := handlers(i, (*State).SetEnv, (*State).RemoveEnv)
	all := h.UpdateFunc
	h.UpdateFunc = func(before, after any) {
		was, _ := before.(*v1alpha1.SandboxEnv)
		is, _ := after.(*v1alpha1.SandboxEnv)
		if was == nil || is == nil || allowed.TextsOf(was.Annotations) != allowed.TextsOf(is.Annotations) {
			all(before, after)
		}
	}
	return h
}

// Guarded is a value that the inventory's lock guards. It is accessible only with a State or a View.
type Guarded[T any] struct{ value T }

// Guard returns a guarded value.
func Guard[T any](value T) Guarded[T] { return Guarded[T]{value} }

// In returns the value, which must not be used after the State or View.
func (g *Guarded[T]) In(*View) *T { return &g.value }
