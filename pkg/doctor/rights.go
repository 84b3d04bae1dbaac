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
	namespaced                     bool // in the worker's namespace, else in all
	verbs                          string
}

// needed is what the worker's roles grant, except for Secrets, which are optional.
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
	// perNamespace is the role that the chart binds in each namespace where namespaces are listed.
	perNamespace = "atoll-worker-in-namespace"
)

// clusterWide are the resources of which a worker of listed namespaces has rights in the whole cluster; because no namespace has
// them.
var clusterWide = []string{"nodes", "namespaces", "sandboxtemplates", "sandboxtemplates/status"}

// question is one permission that the API server is asked for.
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

// questions lists what a worker in a namespace of its own needs, given the namespaces that it serves; none means all.
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
			case r.resource == "leases": // only of the controllers that --rival-leases names
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

// reviewsAtOnce is how many permissions an API server is asked for at a time; because one after the other takes longer than
// inspectTimeout where each takes long, or many namespaces are served.
const reviewsAtOnce = 8

// rights asks the API server instead of reading roles; because its decision counts.
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

// served returns the namespaces that the worker serves; none means all. Its Deployment tells. For a worker that runs elsewhere,
// the chart's bindings do.
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

// namespacesOf returns what a worker's Pod gives --namespaces.
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
