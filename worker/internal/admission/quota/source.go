// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups="",namespace=atoll-system,resources=configmaps,resourceNames=atoll-team-quotas,verbs=list;watch

// Source reads the limits and watches them. A manager runs it.
type Source struct {
	cache   cache.Cache
	limits  atomic.Pointer[Limits]
	handler toolscache.ResourceEventHandlerRegistration
	log     logr.Logger
}

// NewSource creates a Source for the ConfigMap in a namespace. It watches, and may watch, only that object.
func NewSource(ctx context.Context, cfg *rest.Config, namespace string, log logr.Logger) (*Source, error) {
	informers, err := cache.New(cfg, cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
		Namespaces: map[string]cache.Config{namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", Name)}},
	}}})
	if err != nil {
		return nil, fmt.Errorf("preparing to watch ConfigMap %s: %w", Name, err)
	}
	s := &Source{cache: informers, log: log}
	informer, err := informers.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("preparing to watch ConfigMap %s: %w", Name, err)
	}
	s.handler, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    s.set,
		UpdateFunc: func(_, object any) { s.set(object) },
		DeleteFunc: func(any) { s.set(&corev1.ConfigMap{}) },
	})
	if err != nil {
		return nil, fmt.Errorf("preparing to watch ConfigMap %s: %w", Name, err)
	}
	return s, nil
}

func (s *Source) set(object any) {
	cm, ok := object.(*corev1.ConfigMap)
	if !ok {
		return
	}
	limits := Parse(cm.Data)
	s.limits.Store(&limits)
	for team, entry := range limits {
		if entry.Err != nil {
			s.log.Error(entry.Err, "A team's quota cannot be read; its pools do not grow until it is mended", "team", team)
		}
	}
}

// Limits returns the current limits, or false before they were read. Without a ConfigMap there are no limits.
func (s *Source) Limits() (Limits, bool) {
	if !s.handler.HasSynced() {
		return nil, false
	}
	if limits := s.limits.Load(); limits != nil {
		return *limits, true
	}
	return Limits{}, true
}

// Start reads until ctx ends.
func (s *Source) Start(ctx context.Context) error { return s.cache.Start(ctx) }

// NeedLeaderElection returns false, so that a new leader already has the limits.
func (s *Source) NeedLeaderElection() bool { return false }
