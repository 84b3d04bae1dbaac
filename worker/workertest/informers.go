// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

var errUnsupported = errors.New("workertest: these informers do not do that")

// informers is a process's cache: client-go's informers on the server's lists and lagging watches, with the filters and indexes
// of a worker's cache.
type informers struct {
	wire  *wire
	kinds map[*kind]toolscache.SharedIndexInformer
}

var _ cache.Cache = (*informers)(nil)

func newInformers(w *wire) (*informers, error) {
	i := &informers{wire: w, kinds: map[*kind]toolscache.SharedIndexInformer{}}
	for _, object := range []client.Object{&corev1.Pod{}, &corev1.Node{}, &v1alpha1.SandboxEnv{}, &v1alpha1.SandboxPool{}} {
		informer := toolscache.NewSharedIndexInformer(source{w, kindOf(object), sandboxcache.Selector(object)}, object, 0,
			sandboxcache.Indexers(object))
		if transform := sandboxcache.Transform(object); transform != nil {
			if err := informer.SetTransform(copying(transform)); err != nil {
				return nil, fmt.Errorf("preparing informers: %w", err)
			}
		}
		// The default handler delays all errors of the process together, by a clock that outlives the synctest bubble.
		err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *toolscache.Reflector, error) {})
		if err != nil {
			return nil, fmt.Errorf("preparing informers: %w", err)
		}
		i.kinds[kindOf(object)] = informer
	}
	return i, nil
}

// source lists and watches one kind while the process lives.
type source struct {
	wire *wire
	kind *kind
	only labels.Selector
}

// copying copies objects before a transform changes them, because they are the server's own and were not decoded.
func copying(transform toolscache.TransformFunc) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if o, ok := object.(client.Object); ok {
			object = copyOf(o)
		}
		return transform(object)
	}
}

// IsWatchListSemanticsUnSupported makes reflectors list before they watch.
func (s source) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.Lister.
func (s source) List(metav1.ListOptions) (runtime.Object, error) {
	j := s.wire.cluster.plan(false)
	time.Sleep(j.there)
	if s.wire.dead() || j.down {
		return nil, errDown
	}
	return s.wire.cluster.server.handleList(call{name: name{kind: s.kind}, labels: s.only})
}

// Watch implements cache.Watcher.
func (s source) Watch(o metav1.ListOptions) (watch.Interface, error) {
	if s.wire.dead() {
		return nil, errSevered
	}
	var since uint64
	if _, err := fmt.Sscan(o.ResourceVersion, &since); err != nil {
		return nil, fmt.Errorf("watching from %q: %w", o.ResourceVersion, err)
	}
	random := newDice(s.wire.cluster.server)
	return s.wire.cluster.server.watch(s.kind, since, func() time.Duration { return random.below(lagMost) })
}

// Start implements cache.Cache.
func (i *informers) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for _, informer := range i.kinds {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	running.Wait()
	return nil
}

// WaitForCacheSync implements cache.Cache.
func (i *informers) WaitForCacheSync(ctx context.Context) bool {
	var synced []toolscache.InformerSynced
	for _, informer := range i.kinds {
		synced = append(synced, informer.HasSynced)
	}
	return toolscache.WaitForCacheSync(ctx.Done(), synced...)
}

// GetInformer implements cache.Cache.
func (i *informers) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	if informer := i.kinds[kindOf(object)]; informer != nil {
		return informer, nil
	}
	return nil, fmt.Errorf("an informer of %T: %w", object, errUnsupported)
}

// GetInformerForKind implements cache.Cache.
func (i *informers) GetInformerForKind(context.Context, schema.GroupVersionKind, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, errUnsupported
}

// RemoveInformer implements cache.Cache.
func (i *informers) RemoveInformer(context.Context, client.Object) error { return errUnsupported }

// IndexField implements cache.Cache.
func (i *informers) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return errUnsupported
}

// Get implements client.Reader.
func (i *informers) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	k := kindOf(into)
	id := key.Name
	if key.Namespace != "" {
		id = key.Namespace + "/" + key.Name
	}
	found, there, err := i.kinds[k].GetStore().GetByKey(id)
	if err != nil {
		return fmt.Errorf("reading the cache: %w", err)
	}
	if !there {
		return notFound(name{k, key})
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(copyOf(found.(client.Object))).Elem())
	return nil
}

// List implements client.Reader for a namespace and for an index. Its results must not be modified.
func (i *informers) List(_ context.Context, into client.ObjectList, o ...client.ListOption) error {
	options := client.ListOptions{}
	options.ApplyOptions(o)
	for k, informer := range i.kinds {
		if reflect.TypeOf(k.list()) != reflect.TypeOf(into) {
			continue
		}
		found, err := indexed(informer.GetIndexer(), options.FieldSelector)
		if err != nil {
			return fmt.Errorf("listing %T: %w", into, err)
		}
		var items []runtime.Object
		for _, object := range found {
			if at := object.(client.Object).GetNamespace(); options.Namespace == "" || options.Namespace == at {
				items = append(items, object.(runtime.Object))
			}
		}
		return meta.SetList(into, items)
	}
	return fmt.Errorf("listing %T: %w", into, errUnsupported)
}

func indexed(objects toolscache.Indexer, by fields.Selector) ([]any, error) {
	if by == nil {
		return objects.List(), nil
	}
	requirements := by.Requirements()
	if len(requirements) != 1 { // an index supports one value of one field
		return nil, errUnsupported
	}
	return objects.ByIndex(requirements[0].Field, requirements[0].Value)
}

// cached reads the kinds that the informers have from them, and all others live, as the manager's client does.
type cached struct {
	client.Client
	informers *informers
}

// Get implements client.Reader.
func (c cached) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	if c.informers.kinds[kindOf(into)] != nil {
		return c.informers.Get(ctx, key, into, o...)
	}
	return c.Client.Get(ctx, key, into, o...)
}

// List implements client.Reader.
func (c cached) List(ctx context.Context, into client.ObjectList, o ...client.ListOption) error {
	return c.informers.List(ctx, into, o...)
}
