// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// right is a permission that an account needs.
type right struct {
	account, group, resource, name string
	namespaced                     bool // in the worker's namespace, else in all namespaces
	verbs                          string
}

// needed are the permissions that the worker's roles grant, except for those on Secrets, which are optional.
var needed = []right{
	{workerAccount, "", "pods", "", false, "create delete get list patch watch"},
	{workerAccount, "", "pods/exec", "", false, "create get"},
	{workerAccount, "", "pods/log", "", false, "get"},
	{workerAccount, "", "pods/portforward", "", false, "create get"},
	{workerAccount, "", "pods/resize", "", false, "patch"},
	{workerAccount, "", "events", "", false, "list"},
	{workerAccount, "", "nodes", "", false, "list watch"},
	{workerAccount, "", "namespaces", "", false, "get"},
	{workerAccount, "", "namespaces", "kube-system", false, "get"},
	{workerAccount, "agents.navix.sh", "sandboxenvs", "", false, "create get list patch watch"},
	{workerAccount, "agents.navix.sh", "sandboxenvs/status", "", false, "patch"},
	{workerAccount, "agents.navix.sh", "sandboxenvs/finalizers", "", false, "update"},
	{workerAccount, "agents.navix.sh", "sandboxpools", "", false, "create delete get list patch watch"},
	{workerAccount, "agents.navix.sh", "sandboxpools/status", "", false, "patch"},
	{workerAccount, "agents.navix.sh", "sandboxpools/finalizers", "", false, "update"},
	{workerAccount, "agents.navix.sh", "sandboxtemplates", "", false, "list watch"},
	{workerAccount, "agents.navix.sh", "sandboxtemplates/status", "", false, "patch"},
	{workerAccount, "coordination.k8s.io", "leases", "", false, "list"},
	{workerAccount, "events.k8s.io", "events", "", false, "create patch"},
	{workerAccount, "networking.k8s.io", "networkpolicies", "", false, "create delete list patch watch"},
	{workerAccount, "", "configmaps", "", true, "create"},
	{workerAccount, "", "configmaps", "atoll-worker-state", true, "get update"},
	{workerAccount, "", "configmaps", "atoll-instance-types", true, "list watch"},
	{workerAccount, "", "configmaps", "atoll-team-quotas", true, "list watch"},
	{workerAccount, "coordination.k8s.io", "leases", "", true, "create"},
	{workerAccount, "coordination.k8s.io", "leases", "atoll-worker", true, "get update"},
	{workerAccount, "", "serviceaccounts/token", "atoll-sync", true, "create"},
	{workerAccount, "", "serviceaccounts/token", "atoll-catalog", true, "create"},
	{"atoll-sync", "agents.navix.sh", "sandboxenvs/status", "", false, "patch"},
	{"atoll-catalog", "agents.navix.sh", "sandboxenvs", "", false, "create delete get list patch"},
	{"atoll-catalog", "agents.navix.sh", "sandboxtemplates", "", false, "create delete get list patch"},
	{"atoll-catalog", "agents.navix.sh", "sandboxenvs/status", "", false, "patch"},
}

const (
	workerAccount = "atoll-worker"
	// perNamespace is the role that the chart binds in each namespace if namespaces are listed.
	perNamespace = "atoll-worker-in-namespace"
)

// clusterWide are the resources on which a worker with listed namespaces has permissions in the whole cluster, because they are not
// namespaced.
var clusterWide = []string{"nodes", "namespaces", "sandboxtemplates", "sandboxtemplates/status"}

// question is one permission about which the API server is asked.
type question struct {
	account string
	authorizationv1.ResourceAttributes
}

func (q question) String() string {
	out := q.Verb + " " + q.Resource
	if q.Subresource != "" {
		out += "/" + q.Subresource
	}
	if q.account != workerAccount {
		out = q.account + ": " + out
	}
	return out
}

// questions returns the permissions that a worker in the namespace own needs to serve the given namespaces. No namespaces means all.
func questions(own string, served []string) (all []question) {
	for _, r := range needed {
		resource, subresource, _ := strings.Cut(r.resource, "/")
		for _, verb := range strings.Fields(r.verbs) {
			q := question{r.account, authorizationv1.ResourceAttributes{
				Group: r.group, Resource: resource, Subresource: subresource, Name: r.name, Verb: verb,
			}}
			switch {
			case r.namespaced:
				q.Namespace = own
				all = append(all, q)
			case len(served) == 0 || r.name != "" || slices.Contains(clusterWide, r.resource) && r.resource != "namespaces":
				all = append(all, q)
			case r.resource == "leases": // only needed for the controllers that --rival-leases names
			default:
				for _, namespace := range served {
					in := q
					if r.resource == "namespaces" {
						in.Name = namespace
					} else {
						in.Namespace = namespace
					}
					all = append(all, in)
				}
			}
		}
	}
	return all
}

// reviewsAtOnce is the number of concurrent access reviews. One after the other would exceed inspectTimeout if each takes long, or if many
// namespaces are served.
const reviewsAtOnce = 8

// rights asks the API server about permissions instead of reading roles, because the API server's decision is what counts.
func (i inspector) rights(ctx context.Context) error {
	served, err := i.served(ctx)
	if err != nil {
		return err
	}
	all := questions(i.Namespace, served)
	denied := make([]string, len(all)) // in the order of the questions
	asking, within := errgroup.WithContext(ctx)
	asking.SetLimit(reviewsAtOnce)
	for n, q := range all {
		asking.Go(func() error {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + i.Namespace + ":" + q.account, ResourceAttributes: &q.ResourceAttributes,
			}}
			if err := i.client.Create(within, review); err != nil {
				return err
			}
			if review.Status.Allowed {
				return nil
			}
			denied[n] = q.String()
			if len(served) > 0 && q.Namespace != "" {
				denied[n] += " in " + q.Namespace
			}
			return nil
		})
	}
	err = asking.Wait()
	i.site.Denied = slices.DeleteFunc(denied, func(s string) bool { return s == "" })
	return err
}

// served returns the namespaces that the worker serves; none means all. It reads them from the worker's Deployment or, for a worker that
// runs elsewhere, from the chart's role bindings.
func (i inspector) served(ctx context.Context) (served []string, err error) {
	for _, w := range i.site.Workers {
		served = append(served, w.Namespaces...)
	}
	if len(i.site.Workers) > 0 {
		slices.Sort(served)
		return slices.Compact(served), nil
	}
	var all rbacv1.RoleBindingList
	if err := i.client.List(ctx, &all); err != nil {
		return nil, err
	}
	for _, b := range all.Items {
		if b.RoleRef.Name == perNamespace && slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
			return s.Name == workerAccount && s.Namespace == i.Namespace
		}) {
			served = append(served, b.Namespace)
		}
	}
	return served, nil
}

// namespacesOf returns the value of --namespaces in a worker's Pod.
func namespacesOf(pod *corev1.PodSpec) (namespaces []string) {
	add := func(list string) {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name != "" {
				namespaces = append(namespaces, name)
			}
		}
	}
	for _, c := range pod.Containers {
		args := slices.Concat(c.Command, c.Args)
		for n, arg := range args {
			if list, ok := strings.CutPrefix(arg, "--namespaces="); ok {
				add(list)
			} else if arg == "--namespaces" && n+1 < len(args) {
				add(args[n+1])
			}
		}
		for _, e := range c.Env {
			if e.Name == "ATOLL_NAMESPACES" && namespaces == nil {
				add(e.Value)
			}
		}
	}
	return namespaces
}
