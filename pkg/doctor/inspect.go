// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/verify"
)

// Place is a cluster to inspect.
type Place struct {
	ID        string
	Context   string // kubectl context
	Namespace string // namespace of the worker
	Config    *rest.Config
}

// inspectTimeout bounds the inspection of one cluster.
const inspectTimeout = 15 * time.Second

// Look returns a snapshot of the federation, and of what is installed in the given clusters.
func Look(ctx context.Context, federation *verify.Federation, places []Place, now time.Time) *Snapshot {
	s := &Snapshot{Now: now, Sites: map[string]*Site{}}
	var mu sync.Mutex
	var looking sync.WaitGroup
	for _, p := range places {
		looking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
			defer cancel()
			site := p.inspect(ctx)
			mu.Lock()
			defer mu.Unlock()
			s.Sites[p.ID] = site
		})
	}
	s.Snapshot = federation.Look(ctx, nil)
	looking.Wait()
	return s
}

// inspector reads one API server, and records what it could not read.
type inspector struct {
	Place
	client client.Client
	site   *Site
}

func (p Place) inspect(ctx context.Context) *Site {
	site := &Site{Context: p.Context, Namespace: p.Namespace}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			site.Unread = append(site.Unread, Unread{What: err.Error()})
			return site
		}
	}
	config := rest.CopyConfig(p.Config)
	config.QPS = -1 // no client-side limit: the API server has its own fairness
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		site.Unread = append(site.Unread, Unread{What: "client: " + err.Error()})
		return site
	}
	i := inspector{p, c, site}
	for what, ask := range map[string]func(context.Context) error{
		"CRDs": i.crds, "admission policies": i.policies, "Deployments": i.workers, "Pods of " + p.Namespace: i.pods, "leases": i.foreignLeases,
	} {
		i.try(ctx, what, ask)
	}
	i.try(ctx, "rights", i.rights) // last, because the namespaces to ask about depend on the Deployments
	slices.SortFunc(site.Unread, func(a, b Unread) int { return strings.Compare(a.What, b.What) })
	return site
}

// try records what could not be read, also because time ran out: otherwise the snapshot would look complete.
func (i inspector) try(ctx context.Context, what string, ask func(context.Context) error) {
	err := ask(ctx)
	if err == nil {
		return
	}
	unread := Unread{What: fmt.Sprintf("%s: %v", what, err)}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		unread = Unread{What: fmt.Sprintf("%s: not read within %s", what, inspectTimeout), Late: true}
	}
	i.site.Unread = append(i.site.Unread, unread)
}

func (i inspector) crds(ctx context.Context) error {
	found := map[string]*CRD{}
	for name, kind := range kinds {
		var crd apiextensionsv1.CustomResourceDefinition
		err := i.client.Get(ctx, types.NamespacedName{Name: name}, &crd)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		found[name] = nil
		if err == nil {
			found[name] = compare(&crd, kind)
		}
	}
	i.site.CRDs = found
	return nil
}

func (i inspector) policies(ctx context.Context) error {
	var all admissionv1.ValidatingAdmissionPolicyList
	if err := i.client.List(ctx, &all); err != nil {
		return err
	}
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	if err := i.client.List(ctx, &bindings); err != nil {
		return err
	}
	i.site.Policies = []string{}
	for j := range all.Items {
		name := all.Items[j].Name
		if slices.ContainsFunc(bindings.Items, func(b admissionv1.ValidatingAdmissionPolicyBinding) bool {
			return b.Spec.PolicyName == name &&
				(slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) || slices.Contains(b.Spec.ValidationActions, admissionv1.Warn))
		}) {
			i.site.Policies = append(i.site.Policies, name)
		}
	}
	return nil
}

func (i inspector) workers(ctx context.Context) error {
	var all appsv1.DeploymentList
	err := i.client.List(ctx, &all, client.InNamespace(i.Namespace), client.MatchingLabels{"app.kubernetes.io/component": "worker"})
	if err != nil {
		return err
	}
	for j := range all.Items {
		i.site.Workers = append(i.site.Workers, workloadOf(&all.Items[j]))
	}
	return nil
}

func workloadOf(d *appsv1.Deployment) Workload {
	w := Workload{Name: d.Name, Wanted: 1, Available: d.Status.AvailableReplicas, Namespaces: namespacesOf(&d.Spec.Template.Spec)}
	if d.Spec.Replicas != nil {
		w.Wanted = *d.Spec.Replicas
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentAvailable && c.Status != corev1.ConditionTrue {
			w.Message, w.Since = c.Message, c.LastTransitionTime.Time
		}
	}
	return w
}

// pods reads the Pods of the hub and the workers. The federation's snapshot contains those of pools.
func (i inspector) pods(ctx context.Context) error {
	var all corev1.PodList
	if err := i.client.List(ctx, &all, client.InNamespace(i.Namespace)); err != nil {
		return err
	}
	i.site.Pods = slices.DeleteFunc(all.Items, func(p corev1.Pod) bool { return p.Labels[v1alpha1.SandboxPoolLabelKey] != "" })
	return nil
}
