// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/sandboxcache"
	"navix.sh/atoll/worker/internal/snapshot"
)

// errStale means that the cache is behind the API server, or that a write lost a race. It is not a failure; the next reconcile sees the
// newer state.
var errStale = errors.New("the Env has changed since it was read")

// gather builds an observation from the cache. It returns nil for an Env that is deleted or being deleted: the garbage collector deletes
// its pools through their owner references, and their own finalizers wind them down.
func (r *Reconciler) gather(ctx context.Context, name types.NamespacedName) (*observation, error) {
	env := &v1alpha1.SandboxEnv{}
	if err := r.client.Get(ctx, name, env); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading the Env: %w", err)
	}
	if terminating(env) {
		return nil, nil
	}
	now := r.clock.Now()
	o := &observation{
		Source: snapshot.Source{Env: env}, clusterID: r.clusterID, pools: map[string]*v1alpha1.SandboxPool{}, refused: r.refusals.waiting(name),
		now: now, since: agesAt(r.clock, now),
	}
	if err := r.gatherPools(ctx, o); err != nil {
		return nil, err
	}
	if err := r.gatherPullSecret(ctx, o); err != nil {
		return nil, err
	}
	var err error
	if o.Types, err = r.types.Catalogue(ctx); err != nil {
		return nil, err
	}
	if o.Template, err = r.templates.Seen(ctx, env.Namespace, env.Spec.TemplateRef.Name); err != nil {
		return nil, err
	}
	if o.Template != nil && o.Template.Hidden {
		o.Template, o.hidden = nil, true
	}
	if err := r.gatherExplicitReplicas(ctx, o); err != nil {
		return nil, err
	}
	o.matched = r.matches.of(env)
	o.allotted = r.allotted != nil && r.allotted()
	o.autoscaler, o.contested = r.contests != nil, r.contests.Update(env, r.clusterID, o.pools)
	return o, nil
}

// agesAt returns a function that computes ages as of one moment, however long the decision takes. Times computed from them are written, and
// must be the same each time.
func agesAt(clk clock.PassiveClock, now time.Time) func(time.Time) time.Duration {
	return func(t time.Time) time.Duration { return clk.Since(t) - clk.Since(now) }
}

func (r *Reconciler) gatherPools(ctx context.Context, o *observation) error {
	// The objects belong to the cache; this package never modifies a pool that it has read.
	owned, err := sandboxcache.PoolsOf(ctx, r.client, o.Env)
	if err != nil {
		return err
	}
	for i := range owned {
		o.pools[owned[i].Name] = &owned[i]
	}
	for _, member := range o.members() {
		if o.pools[member.Name] != nil {
			continue
		}
		pool := &v1alpha1.SandboxPool{}
		err := r.client.Get(ctx, types.NamespacedName{Namespace: o.Env.Namespace, Name: member.Name}, pool)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading pool %s: %w", member.Name, err)
		}
		o.pools[member.Name] = pool
	}
	return nil
}

// gatherExplicitReplicas reads the Env live if a member has no snapshot, which is rare.
func (r *Reconciler) gatherExplicitReplicas(ctx context.Context, o *observation) error {
	var live *envDoc
	for _, member := range o.members() {
		if snapshot.Has(member) {
			continue
		}
		if live == nil {
			var err error
			if live, err = r.readLive(ctx, o); err != nil {
				return err
			}
			o.explicitReplicas = map[string]int32{}
		}
		at := live.member(member.Name)
		if at == nil {
			return fmt.Errorf("member %s: %w", member.Name, errStale)
		}
		if replicas, ok := at.replicas(); ok {
			o.explicitReplicas[member.Name] = replicas
		}
	}
	return nil
}

// readLive reads the Env's document from the API server. It returns errStale if that is not the observed one: with a cache that lags, or
// that is newer for pools than for Envs, this package would undo newer changes.
func (r *Reconciler) readLive(ctx context.Context, o *observation) (*envDoc, error) {
	doc := &unstructured.Unstructured{}
	doc.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.SandboxEnvOwnerKind))
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(o.Env), doc); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, errStale
		}
		return nil, fmt.Errorf("reading the Env live: %w", err)
	}
	if same, err := sandboxcache.UnchangedEnv(doc, o.Env); err != nil || !same || doc.GetDeletionTimestamp() != nil {
		return nil, errors.Join(errStale, err)
	}
	return &envDoc{Unstructured: doc, clusterID: r.clusterID}, nil
}
