// SPDX-License-Identifier: Apache-2.0

package kubecatalog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/hub/internal/catalog"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	fieldManager = "atoll-catalog"
	leadership   = "catalogue" // name by which replicas elect the one that reconciles

	workers     = 4
	callTimeout = 10 * time.Second
	again       = time.Second
	// tellEvery is the minimum interval at which conditions follow the reports of clusters.
	tellEvery = time.Second
	// resync is the interval at which every object is reconciled without an event.
	resync = 10 * time.Minute
)

var resources = map[string]schema.GroupVersionResource{
	manifest.EnvKind:      v1alpha1.GroupVersion.WithResource("sandboxenvs"),
	manifest.TemplateKind: v1alpha1.GroupVersion.WithResource("sandboxtemplates"),
}

// Catalog stores objects.
type Catalog interface {
	Take(ctx context.Context, in catalog.Sourced) error
	Drop(ctx context.Context, ref manifest.Ref, by string) error
	Summarize(ref manifest.Ref) catalog.Summary
	Changes() <-chan struct{}
}

// Options configure a Source.
type Options struct {
	Config *rest.Config
	// Registration returns the uid of a cluster's kube-system, as the hub knows it.
	Registration func(clusterID string) string
	Store        store.Store
	Clock        clock.WithTicker
	Log          logr.Logger
	// Catalog is set before Run.
	Catalog Catalog
}

// Source takes objects from the hub's own cluster. It implements catalog.Source.
type Source struct {
	opts   Options
	client dynamic.Interface
	uid    atomic.Pointer[string] // uid of the hub's cluster; nil: not known yet
}

// New returns a Source. Callers call Serve and then Run. New does not call the API server.
func New(o Options) (*Source, error) {
	config := rest.CopyConfig(o.Config)
	config.QPS, config.Burst = 50, 100
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client of the hub's cluster: %w", err)
	}
	return &Source{opts: o, client: client}, nil
}

// Serve sets the Catalog. Call it before Run.
func (s *Source) Serve(c Catalog) { s.opts.Catalog = c }

// Own implements catalog.Source.
func (s *Source) Own(cluster string) (own, known bool) {
	uid := s.uid.Load()
	return uid != nil && *uid == s.opts.Registration(cluster), uid != nil
}

// Has implements catalog.Source.
func (s *Source) Has(ctx context.Context, ref manifest.Ref) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	o, err := s.of(ref).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && isSource(o), err
}

// Run identifies the hub's cluster, and reconciles objects while this replica leads, until ctx ends.
func (s *Source) Run(ctx context.Context) error {
	if !s.identify(ctx) {
		return nil
	}
	shared, several := s.opts.Store.(store.Shared)
	for ctx.Err() == nil {
		if !several {
			s.lead(ctx)
		} else if err := shared.Lead(ctx, leadership, s.lead); errors.Is(err, store.ErrClosed) {
			return nil
		}
		_ = wallclock.Sleep(ctx, s.opts.Clock, again)
	}
	return nil
}

// identify reads the uid of kube-system. It retries until it succeeds, and returns false if ctx ends first.
func (s *Source) identify(ctx context.Context) bool {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		ns, err := s.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
			Get(call, metav1.NamespaceSystem, metav1.GetOptions{})
		cancel()
		if err == nil {
			uid := string(ns.GetUID())
			s.uid.Store(&uid)
			return true
		}
		s.opts.Log.Info("The catalogue is delivered to no cluster yet: the uid of the hub's own cluster could not be read", "error", err.Error())
		_ = wallclock.Sleep(ctx, s.opts.Clock, again)
	}
	return false
}

// lead reconciles objects until ctx ends.
func (s *Source) lead(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[manifest.Ref](
		50*time.Millisecond, 30*time.Second))
	var running sync.WaitGroup
	defer running.Wait()
	defer queue.ShutDown()
	defer end()
	factory := dynamicinformer.NewDynamicSharedInformerFactory(s.client, resync)
	defer factory.Shutdown()
	enqueue := func(kind string, v any) {
		if o, ok := v.(*unstructured.Unstructured); ok {
			queue.Add(manifest.Ref{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()})
		}
	}
	stores := map[string]cache.Store{}
	var synced []cache.InformerSynced
	for kind, resource := range resources {
		informer := factory.ForResource(resource).Informer()
		err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			s.opts.Log.Info("Could not watch the objects of the hub's own cluster; it is tried again", "kind", kind, "error", err.Error())
		})
		if err == nil {
			_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
				AddFunc: func(v any) { enqueue(kind, v) }, UpdateFunc: func(_, v any) { enqueue(kind, v) },
			})
		}
		if err != nil {
			s.opts.Log.Error(err, "The informer of the catalogue was not set up", "kind", kind)
			return
		}
		stores[kind], synced = informer.GetStore(), append(synced, informer.HasSynced)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return
	}
	for range workers {
		running.Go(func() { s.work(ctx, queue, stores) })
	}
	s.follow(ctx, func() {
		for kind, known := range stores {
			for _, v := range known.List() {
				enqueue(kind, v)
			}
		}
	})
}

// follow calls all after changes of the catalogue's state, until ctx ends.
func (s *Source) follow(ctx context.Context, all func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.opts.Catalog.Changes():
			all()
			_ = wallclock.Sleep(ctx, s.opts.Clock, tellEvery)
		}
	}
}

type queue = workqueue.TypedRateLimitingInterface[manifest.Ref]

func (s *Source) work(ctx context.Context, q queue, stores map[string]cache.Store) {
	for {
		ref, down := q.Get()
		if down || ctx.Err() != nil {
			return
		}
		s.one(ctx, q, ref, stores[ref.Kind])
	}
}

func (s *Source) one(ctx context.Context, q queue, ref manifest.Ref, known cache.Store) {
	defer q.Done(ref)
	v, _, err := known.GetByKey(cache.NewObjectName(ref.Namespace, ref.Name).String())
	if err == nil {
		o, _ := v.(*unstructured.Unstructured)
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err = s.reconcile(call, ref, o)
		cancel()
	}
	if err == nil || ctx.Err() != nil {
		q.Forget(ref)
		return
	}
	s.opts.Log.Info("Could not reconcile an object of the hub's own cluster; it is tried again", "object", ref.String(), "error", err.Error())
	q.AddRateLimited(ref)
}
