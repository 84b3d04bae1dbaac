// SPDX-License-Identifier: Apache-2.0

package quiet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	// Template is the template of all Envs.
	Template = "quiet"
	// patience bounds a fill of any size.
	patience = 30 * time.Minute
	writers  = 16
)

// Ground is a cluster to fill.
type Ground struct {
	Kube      client.Client
	Cluster   string
	Namespace string
}

// Prepare creates the namespace and the template.
func (g Ground) Prepare(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: g.Namespace}}
	if err := client.IgnoreAlreadyExists(g.Kube.Create(ctx, ns)); err != nil {
		return fmt.Errorf("creating namespace %s: %w", g.Namespace, err)
	}
	template, err := g.Env(Template, 0).TemplateManifest()
	if err != nil {
		return err
	}
	if err := client.IgnoreAlreadyExists(g.create(ctx, template)); err != nil {
		return fmt.Errorf("creating template %s: %w", Template, err)
	}
	return wait.Until(ctx, time.Minute, "the default service account", func(ctx context.Context) error {
		err := g.Kube.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: "default"}, &corev1.ServiceAccount{})
		return err
	})
}

func (g Ground) create(ctx context.Context, manifest string) error {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
		return fmt.Errorf("reading a manifest: %w", err)
	}
	return g.Kube.Create(ctx, object)
}

// Env is an Env with one pool of its name.
func (g Ground) Env(name string, pods int) stack.Env {
	return stack.Env{
		Name: name, Namespace: g.Namespace, Template: Template, Image: "registry.example/quiet:1",
		Members: []stack.Member{{Cluster: g.Cluster, Name: name, Replicas: pods, Resources: "{requests: {cpu: 1m, memory: 1Mi}}"}},
	}
}

// EnvName is the name of the i-th Env, and of its member and pool.
func EnvName(i int) string { return fmt.Sprintf("quiet-%04d", i) }

// Fill creates Envs with that many Pods each, and waits until all are ready.
func (g Ground) Fill(ctx context.Context, envs, pods int) error {
	if err := g.CreateEnvs(ctx, envs, pods); err != nil {
		return err
	}
	return g.Filled(ctx, envs, pods)
}

// CreateEnvs creates Envs with that many Pods each.
func (g Ground) CreateEnvs(ctx context.Context, envs, pods int) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range envs {
		group.Go(func() error { return g.CreateEnv(groupCtx, EnvName(i), pods) })
	}
	return group.Wait()
}

// Filled waits until the status of all pools and Envs tells of that many Pods. It lists them again and again, which costs the API server as
// much as filling: a caller that times that waits for the Pods first.
func (g Ground) Filled(ctx context.Context, envs, pods int) error {
	return wait.Until(ctx, patience, "all Pods to be ready", func(ctx context.Context) error {
		full, ready, err := g.count(ctx, pods)
		return errors.Join(err, wait.If(full == envs && ready == envs, fmt.Sprintf("%d pools full and %d Envs ready of %d", full, ready, envs)))
	})
}

// CreateEnv creates one Env with one pool.
func (g Ground) CreateEnv(ctx context.Context, name string, pods int) error {
	if err := g.create(ctx, g.Env(name, pods).EnvManifest()); err != nil {
		return fmt.Errorf("creating Env %s: %w", name, err)
	}
	return nil
}

// count returns how many pools have all Pods ready, and how many Envs report so.
func (g Ground) count(ctx context.Context, pods int) (full, ready int, err error) {
	var pools v1alpha1.SandboxPoolList
	var envs v1alpha1.SandboxEnvList
	for _, list := range []client.ObjectList{&pools, &envs} {
		if err := g.Kube.List(ctx, list, client.InNamespace(g.Namespace)); err != nil {
			return 0, 0, fmt.Errorf("counting: %w", err)
		}
	}
	for i := range pools.Items {
		if st := &pools.Items[i].Status; st.IdleReplicas-st.UnavailableIdleReplicas == int32(pods) {
			full++
		}
	}
	for i := range envs.Items {
		st := &envs.Items[i].Status
		if meta.IsStatusConditionTrue(st.Conditions, v1alpha1.SandboxEnvConditionReady) && st.IdleReplicas == int32(pods) {
			ready++
		}
	}
	return full, ready, nil
}

// DeleteEnv deletes an Env and waits until its Pods are gone.
func (g Ground) DeleteEnv(ctx context.Context, name string) error {
	object := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: name}}
	if err := client.IgnoreNotFound(g.Kube.Delete(ctx, object)); err != nil {
		return fmt.Errorf("deleting Env %s: %w", name, err)
	}
	return wait.Until(ctx, patience, "the pool to be gone", func(ctx context.Context) error {
		err := g.Kube.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: name}, &v1alpha1.SandboxPool{})
		return wait.If(apierrors.IsNotFound(err), err)
	})
}
