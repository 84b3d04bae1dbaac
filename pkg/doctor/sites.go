// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/plural"
	"navix.sh/atoll/pkg/verify"
)

// policies are the admission policies of the worker's chart.
var policies = []string{
	"atoll-env-segments", "atoll-image-references", "atoll-pod-fields", "atoll-pod-templates", "atoll-pool-replicas", "atoll-pool-scale",
	"atoll-reserved-keys", "atoll-sandboxes", "atoll-scaling-groups", "atoll-templates-in-use",
}

// installations reports what a cluster lacks for its worker.
func installations(s *Snapshot) []Diagnosis {
	var out []Diagnosis
	for _, id := range slices.Sorted(maps.Keys(s.Sites)) {
		site := s.Sites[id]
		add := func(d Diagnosis) {
			d.Cluster = id
			out = append(out, d)
		}
		helm := "helm upgrade atoll-worker charts/worker -n " + s.namespace(id) + " --reuse-values"
		if site.Context != "" {
			helm += " --kube-context " + site.Context
		}
		if missing := missingCRDs(site); len(missing) > 0 {
			add(Diagnosis{Reason: CRDMissing, Severity: Critical, Object: "CRDs", What: "there is no " + strings.Join(missing, ", "),
				Do: s.kubectl(id) + " apply --server-side -f charts/worker/files/crds"})
		}
		for _, name := range slices.Sorted(maps.Keys(site.CRDs)) {
			if crd := site.CRDs[name]; crd != nil && len(crd.Missing) > 0 {
				add(Diagnosis{Reason: CRDOld, Severity: Warning, Object: "CRD " + name,
					What: "does not know " + some(crd.Missing) + ": what is written there is dropped without a word",
					Do:   s.kubectl(id) + " apply --server-side -f charts/worker/files/crds"})
			}
		}
		if len(site.Denied) > 0 {
			add(Diagnosis{Reason: RightsMissing, Severity: Critical, Object: "RBAC", What: "denied to the worker: " + some(site.Denied),
				Do: helm + "\nor: " + s.kubectl(id) + " apply --server-side -f charts/worker/files/rbac"})
		}
		if missing := without(policies, site.Policies); len(missing) > 0 && site.Policies != nil {
			add(Diagnosis{Reason: PolicyMissing, Severity: Warning, Object: "admission policies",
				What: "not in force: " + strings.Join(missing, ", ") + "; users can change what only workers may",
				Do:   helm + " --set admissionPolicies.enabled=true"})
		}
		for _, unread := range site.Unread {
			d := Diagnosis{Reason: NotTold, Severity: Info, Object: "API server", What: unread.What,
				Do: "ask with the rights of a cluster administrator"}
			if unread.Late {
				d.Do = s.kubectl(id) + " get --raw /readyz?verbose"
			}
			add(d)
		}
		for _, d := range worker(s, id, site) {
			add(d)
		}
	}
	return out
}

func missingCRDs(site *Site) []string {
	if site == nil {
		return nil
	}
	var missing []string
	for name, crd := range site.CRDs {
		if crd == nil {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}

// worker reports problems with the Deployments of a cluster's worker, and with its lease. A worker may run outside its cluster, so a
// missing Deployment is no problem while a worker leads.
func worker(s *Snapshot, id string, site *Site) []Diagnosis {
	c := s.cluster(id)
	if c == nil {
		return nil // its lease is unknown
	}
	var out []Diagnosis
	lead := c.Leads()
	for _, w := range site.Workers {
		d := Diagnosis{Object: "deployment " + w.Name, Since: s.age(c, w.Since),
			Do: fmt.Sprintf("%s -n %s describe pods -l app.kubernetes.io/name=atoll-worker", s.kubectl(id), s.namespace(id))}
		switch {
		case w.Wanted == 0 && !lead:
			d.Reason, d.Severity, d.What = WorkerUnavailable, Critical, "is scaled to 0"
			d.Do = fmt.Sprintf("%s -n %s scale deployment %s --replicas=2", s.kubectl(id), s.namespace(id), w.Name)
		case w.Available == 0 && w.Wanted > 0:
			d.Reason, d.Severity, d.What = WorkerUnavailable, Critical, fmt.Sprintf("none of %d replicas is available", w.Wanted)
		case w.Available < w.Wanted:
			d.Reason, d.Severity, d.What = WorkerUnavailable, Warning, fmt.Sprintf("%d of %d replicas are available", w.Available, w.Wanted)
		default:
			continue
		}
		if w.Message != "" {
			d.What += ": " + w.Message
		}
		out = append(out, d)
	}
	if lead {
		return out
	}
	d := Diagnosis{Reason: NoLeader, Severity: Critical, Object: "lease atoll-worker",
		What: "no worker leads: no claims are served, pools are not refilled", Do: s.logs(id)}
	if c.Lease != nil && c.Lease.Age != nil {
		d.Since = *c.Lease.Age
	}
	if len(site.Workers) == 0 {
		d.Reason, d.What = WorkerMissing, "there is no worker here: no claims are served, pools are not refilled"
		d.Do = "helm install atoll-worker charts/worker -n " + s.namespace(id) + " --set clusterID=" + id + ",hub.address=…:8443"
		if site.Context != "" {
			d.Do += " --kube-context " + site.Context
		}
		d.Do += "\na worker that runs elsewhere: start it again"
	}
	return append(out, d)
}

// trouble is a problem that keeps one or more Pods of a pool from running.
type trouble struct {
	reason  Reason
	message string
	first   *corev1.Pod
	count   int
	since   time.Duration
}

// pods reports Pods that do not start, grouped by pool.
func pods(s *Snapshot) []Diagnosis {
	var out []Diagnosis
	for i := range s.Clusters {
		c := &s.Clusters[i]
		all := slices.Clone(c.Pods)
		if site := s.Sites[c.ID]; site != nil {
			all = append(all, site.Pods...)
		}
		troubles := map[string]*trouble{}
		for j := range all {
			p := &all[j]
			reason, message := troubleOf(p)
			if reason == "" || p.DeletionTimestamp != nil {
				continue
			}
			key := p.Namespace + "/" + cmp.Or(p.Labels[v1alpha1.SandboxPoolLabelKey], p.Name) + " " + string(reason)
			t := troubles[key]
			if t == nil {
				t = &trouble{reason: reason, message: message, first: p}
				troubles[key] = t
			}
			t.count++
			t.since = max(t.since, s.age(c, p.CreationTimestamp.Time))
		}
		for _, t := range troubles {
			out = append(out, s.ofTrouble(c, t))
		}
	}
	return out
}

func (s *Snapshot) ofTrouble(c *verify.Cluster, t *trouble) Diagnosis {
	d := Diagnosis{Reason: t.reason, Severity: Warning, Cluster: c.ID, Object: "pod " + t.first.Namespace + "/" + t.first.Name, Since: t.since,
		What: t.message, Do: fmt.Sprintf("%s -n %s describe pod %s", s.kubectl(c.ID), t.first.Namespace, t.first.Name)}
	if pool := t.first.Labels[v1alpha1.SandboxPoolLabelKey]; pool != "" {
		d.Object = "pool " + t.first.Namespace + "/" + pool
		d.What = fmt.Sprintf("%s: %s", plural.Of(t.count, "Pod"), t.message)
	}
	return d
}

// troubleOf returns what keeps a Pod from starting, if anything.
func troubleOf(p *corev1.Pod) (Reason, string) {
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			w := statuses[i].State.Waiting
			if w == nil {
				continue
			}
			switch w.Reason {
			case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable":
				return ImagePullFailing, fmt.Sprintf("cannot pull %s (%s)", statuses[i].Image, w.Reason)
			case "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
				return ContainersCrashing, fmt.Sprintf("container %s does not run (%s)", statuses[i].Name, w.Reason)
			}
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return PodsUnschedulable, "no node has room: " + c.Message
		}
	}
	return "", ""
}

// some returns the first few of a list of items.
func some(items []string) string {
	const most = 5
	if len(items) <= most {
		return strings.Join(items, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:most], ", "), len(items)-most)
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}
