// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
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
	Context   string // of kubectl
	Namespace string // of the worker
	Config    *rest.Config
}

// inspectTimeout bounds the look at one cluster.
const inspectTimeout = 15 * time.Second

// Look gathers a snapshot of the federation, and of what is installed in the places.
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
			site.Unread = append(site.Unread, err.Error())
			return site
		}
	}
	config := rest.CopyConfig(p.Config)
	config.QPS = -1 // the API server's own fairness decides
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return site // it is unreachable; the look at the federation reports that as well
	}
	i := inspector{p, c, site}
	for what, ask := range map[string]func(context.Context) error{
		"CRDs": i.crds, "admission policies": i.policies, "Deployments": i.workers, "Pods of " + p.Namespace: i.pods, "rights": i.rights,
		"leases": i.foreignLeases,
	} {
		if err := ask(ctx); err != nil && ctx.Err() == nil {
			site.Unread = append(site.Unread, fmt.Sprintf("%s: %v", what, err))
		}
	}
	slices.Sort(site.Unread)
	return site
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
		d := &all.Items[j]
		w := Workload{Name: d.Name, Wanted: 1, Available: d.Status.AvailableReplicas}
		if d.Spec.Replicas != nil {
			w.Wanted = *d.Spec.Replicas
		}
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentAvailable && c.Status != corev1.ConditionTrue {
				w.Message = c.Message
			}
		}
		i.site.Workers = append(i.site.Workers, w)
	}
	return nil
}

// pods reads the Pods of hub and workers. The look at the federation has those of pools.
func (i inspector) pods(ctx context.Context) error {
	var all corev1.PodList
	if err := i.client.List(ctx, &all, client.InNamespace(i.Namespace)); err != nil {
		return err
	}
	i.site.Pods = slices.DeleteFunc(all.Items, func(p corev1.Pod) bool { return p.Labels[v1alpha1.SandboxPoolLabelKey] != "" })
	return nil
}

// right is a permission that an account needs.
type right struct {
	account, group, resource, name string
	namespaced                     bool // in the worker's namespace, else in all
	verbs                          string
}

// needed is what the worker's roles grant, except for Secrets, which are optional.
var needed = []right{
	{"atoll-worker", "", "pods", "", false, "create delete get list patch watch"},
	{"atoll-worker", "", "pods/exec", "", false, "create get"},
	{"atoll-worker", "", "pods/log", "", false, "get"},
	{"atoll-worker", "", "pods/portforward", "", false, "create get"},
	{"atoll-worker", "", "pods/resize", "", false, "patch"},
	{"atoll-worker", "", "events", "", false, "list"},
	{"atoll-worker", "", "nodes", "", false, "list watch"},
	{"atoll-worker", "", "namespaces", "", false, "get"},
	{"atoll-worker", "", "namespaces", "kube-system", false, "get"},
	{"atoll-worker", "agents.navix.sh", "sandboxenvs", "", false, "create get list patch watch"},
	{"atoll-worker", "agents.navix.sh", "sandboxenvs/status", "", false, "patch"},
	{"atoll-worker", "agents.navix.sh", "sandboxenvs/finalizers", "", false, "update"},
	{"atoll-worker", "agents.navix.sh", "sandboxpools", "", false, "create delete get list patch watch"},
	{"atoll-worker", "agents.navix.sh", "sandboxpools/status", "", false, "patch"},
	{"atoll-worker", "agents.navix.sh", "sandboxpools/finalizers", "", false, "update"},
	{"atoll-worker", "agents.navix.sh", "sandboxtemplates", "", false, "list watch"},
	{"atoll-worker", "agents.navix.sh", "sandboxtemplates/status", "", false, "patch"},
	{"atoll-worker", "coordination.k8s.io", "leases", "", false, "list"},
	{"atoll-worker", "events.k8s.io", "events", "", false, "create patch"},
	{"atoll-worker", "networking.k8s.io", "networkpolicies", "", false, "create delete list patch watch"},
	{"atoll-worker", "", "configmaps", "", true, "create"},
	{"atoll-worker", "", "configmaps", "atoll-worker-state", true, "get update"},
	{"atoll-worker", "", "configmaps", "atoll-instance-types", true, "list watch"},
	{"atoll-worker", "", "configmaps", "atoll-team-quotas", true, "list watch"},
	{"atoll-worker", "coordination.k8s.io", "leases", "", true, "create"},
	{"atoll-worker", "coordination.k8s.io", "leases", "atoll-worker", true, "get update"},
	{"atoll-worker", "", "serviceaccounts/token", "atoll-sync", true, "create"},
	{"atoll-sync", "agents.navix.sh", "sandboxenvs/status", "", false, "patch"},
}

// rights asks the API server instead of reading roles; because its decision counts.
func (i inspector) rights(ctx context.Context) error {
	for _, r := range needed {
		resource, subresource, _ := strings.Cut(r.resource, "/")
		for _, verb := range strings.Fields(r.verbs) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + i.Namespace + ":" + r.account,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: r.group, Resource: resource, Subresource: subresource, Name: r.name, Verb: verb,
				},
			}}
			if r.namespaced {
				review.Spec.ResourceAttributes.Namespace = i.Namespace
			}
			if err := i.client.Create(ctx, review); err != nil {
				return err
			}
			if !review.Status.Allowed {
				denied := verb + " " + r.resource
				if r.account != "atoll-worker" {
					denied = r.account + ": " + denied
				}
				i.site.Denied = append(i.site.Denied, denied)
			}
		}
	}
	return nil
}
