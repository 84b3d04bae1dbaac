// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/foreigncontroller"
	"navix.sh/atoll/pkg/verify"
)

var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func stamp(t time.Time) *timestamppb.Timestamp { return timestamppb.New(t) }

func hubCluster(id string) *sandboxv1.Cluster {
	return &sandboxv1.Cluster{Id: id, State: sandboxv1.ClusterState_FRESH, Version: "v1", LastSeen: durationpb.New(time.Second),
		CertificateExpires: stamp(now.Add(20 * 24 * time.Hour))}
}

func part(cluster, state string, idle, ready int32) *sandboxv1.EnvCluster {
	return &sandboxv1.EnvCluster{ClusterId: cluster, State: sandboxv1.ClusterState_FRESH, Members: []*sandboxv1.EnvMember{
		{Name: "py-" + cluster, State: state, Idle: idle, ReadyIdle: ready, Desired: idle},
	}}
}

// healthy is a federation whose hub and cluster east are reachable.
func healthy() *Snapshot {
	crds := map[string]*CRD{}
	for name := range kinds {
		crds[name] = &CRD{}
	}
	return &Snapshot{
		Now: now.Add(-time.Minute),
		Snapshot: &verify.Snapshot{
			Clusters: []verify.Cluster{{ID: "east", Clock: verify.Clock{Now: now},
				Envs:  []v1alpha1.SandboxEnv{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "py"}}},
				Lease: &verify.Lease{Holder: "a", Duration: 15 * time.Second, Age: new(4 * time.Second)}}},
			Hub: &verify.Hub{
				Clusters: []*sandboxv1.Cluster{hubCluster("east"), hubCluster("west")},
				Envs: []*sandboxv1.Env{{Namespace: "default", Name: "py", Idle: 4, Desired: 4, Clusters: []*sandboxv1.EnvCluster{
					part("east", "Active", 2, 2), part("west", "Active", 2, 2),
				}}},
				Status: &sandboxv1.HubStatus{Version: "v1", CertificateExpires: stamp(now.Add(20 * 24 * time.Hour))},
				Clock:  verify.Clock{Now: now},
			},
		},
		Sites: map[string]*Site{"east": {Context: "kind-east", Namespace: "atoll-system", CRDs: crds, Policies: policies,
			Workers: []Workload{{Name: "atoll-worker", Wanted: 2, Available: 2}}}},
	}
}

func (s *Snapshot) condition(kind string, status metav1.ConditionStatus, reason, message string) {
	e := &s.Clusters[0].Envs[0]
	e.Spec.TemplateRef.Name = "python"
	e.Status.Conditions = append(e.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Add(-10 * time.Minute)),
	})
}

func waiting(name, pool, reason string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		CreationTimestamp: metav1.NewTime(now.Add(-3 * time.Hour))}}
	if pool != "" {
		p.Labels = map[string]string{v1alpha1.SandboxPoolLabelKey: pool}
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "registry.example/py:9",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	return p
}

func TestDiagnose(t *testing.T) {
	for name, change := range map[string]func(*Snapshot){
		"all-is-well": func(*Snapshot) {},
		"hub-gone": func(s *Snapshot) {
			s.Hub, s.Blind = nil, []verify.Blind{{What: "hub", Why: "connection refused"}}
			s.condition("Federated", "False", "HubUnreachable", "no hub is connected; shown as last heard: west")
		},
		"hub-refuses": func(s *Snapshot) {
			s.Hub, s.Blind = nil, []verify.Blind{{What: "hub", Why: `API key "ci" expired at 2026-02-28T12:00:00Z`, Refused: true},
				{What: "cluster north", Why: "listing Pods: pods is forbidden", Refused: true}}
		},
		"hub-certificate": func(s *Snapshot) {
			s.Hub, s.Blind = nil, []verify.Blind{{What: "hub",
				Why: "authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority"}}
		},
		"hub-recovering": func(s *Snapshot) {
			s.Hub.Status.Recovering, s.Hub.Status.Reason = true, "LedgerLost"
			s.Hub.Status.Since, s.Hub.Status.AwaitedClusters = stamp(now.Add(-5*time.Minute)), []string{"north", "west"}
			s.Hub.Status.StoreFailure = "store file /data/claims.db: no space left on device"
		},
		"hub-replica-unreachable": func(s *Snapshot) {
			s.Hub.Replicas = []*sandboxv1.Replica{
				{Name: "hub-0", Reachable: true, Self: true}, {Name: "hub-1", Reachable: true}, {Name: "hub-2", Address: "10.0.0.3:8444"},
			}
		},
		"hub-loss-accepted": func(s *Snapshot) {
			s.Hub.Status.Accepted, s.Hub.Status.Reason = true, "LedgerRestored"
			s.Hub.Status.Since, s.Hub.Status.AwaitedClusters = stamp(now.Add(-3*24*time.Hour)), []string{"west"}
		},
		"envs-broken-hub-only": func(s *Snapshot) { // nothing but the hub is looked at
			s.Clusters, s.Sites = nil, nil
			broken := part("east", "Missing", 0, 0)
			broken.Fault = `TemplateNotFound: py-east: there is no SandboxTemplate "py"; create it`
			s.Hub.Envs = []*sandboxv1.Env{
				{Namespace: "default", Name: "no-template", Clusters: []*sandboxv1.EnvCluster{broken}},
				{Namespace: "default", Name: "anothers-pool", Desired: 2, Clusters: []*sandboxv1.EnvCluster{part("east", "Inconsistent", 0, 0)}},
				{Namespace: "default", Name: "on-mars", Clusters: []*sandboxv1.EnvCluster{{ClusterId: "west", State: sandboxv1.ClusterState_FRESH}},
					MissingClusters: []string{"mars"}},
			}
		},
		"template-outdated": func(s *Snapshot) {
			s.condition("TemplateConsistent", "False", "TemplateOutdated", "py-east: made from revision 1")
		},
		"hub-empty": func(s *Snapshot) { s.Hub.Clusters, s.Hub.Envs, s.Clusters, s.Sites = nil, nil, nil, nil },
		"ends": func(s *Snapshot) {
			s.Hub.Status.CertificateExpires = stamp(now.Add(5 * 24 * time.Hour))
			s.Hub.Status.ApiKeyExpires = stamp(now.Add(3 * time.Hour))
			s.Hub.Clusters[1].CertificateExpires = stamp(now.Add(-time.Hour))
			s.Hub.Clusters[0].CertificateExpires = stamp(now.Add(3 * 24 * time.Hour)) // a tenth of its life
		},
		"ends-short": func(s *Snapshot) { // certificates of a day: a fifth and a tenth of their life, and enough
			s.Hub.Status.CertificateExpires, s.Hub.Status.CertificateLifetime = stamp(now.Add(6*time.Hour)), durationpb.New(24*time.Hour)
			s.Hub.Clusters[0].CertificateExpires, s.Hub.Clusters[0].CertificateLifetime = stamp(now.Add(4*time.Hour)), durationpb.New(24*time.Hour)
			s.Hub.Clusters[1].CertificateExpires, s.Hub.Clusters[1].CertificateLifetime = stamp(now.Add(2*time.Hour)), durationpb.New(24*time.Hour)
		},
		"versions": func(s *Snapshot) { s.Hub.Clusters[1].Version = "v2" },
		"clusters": func(s *Snapshot) {
			s.Hub.Clusters[1].State, s.Hub.Clusters[1].Message = sandboxv1.ClusterState_UNREACHABLE, "nothing heard for 20m0s"
			s.Hub.Clusters[1].LastSeen = durationpb.New(20 * time.Minute)
			s.Hub.Clusters[0].State, s.Hub.Clusters[0].Message = sandboxv1.ClusterState_SUSPECT, "not connected"
			quarantined, draining := hubCluster("clone"), hubCluster("old")
			quarantined.State, quarantined.Message = sandboxv1.ClusterState_QUARANTINED, "two clusters with this name take turns; stop one of them"
			draining.State, draining.Running = sandboxv1.ClusterState_DRAINING, 3
			s.Hub.Clusters = append(s.Hub.Clusters, quarantined, draining)
		},
		"cluster-revoked": func(s *Snapshot) {
			s.Hub.Clusters[1].State, s.Hub.Clusters[1].LastSeen = sandboxv1.ClusterState_UNREACHABLE, durationpb.New(2*time.Minute)
			s.Hub.Clusters[1].Message = "revoked: its certificates are refused until it joins by an invitation; nothing heard for 2m0s"
			s.Hub.Clusters[1].Revoked = true
		},
		"hub-just-started": func(s *Snapshot) {
			s.Hub.Replicas = []*sandboxv1.Replica{{Name: "hub-0", Reachable: true, Self: true, Since: stamp(now.Add(-5 * time.Second))}}
			for _, c := range s.Hub.Clusters {
				c.State, c.LastSeen, c.Message = sandboxv1.ClusterState_UNREACHABLE, nil, "not seen since the hub started"
			}
		},
		"cluster-unregistered": func(s *Snapshot) { s.Hub.Clusters = s.Hub.Clusters[1:] },
		"cluster-away-by-itself": func(s *Snapshot) {
			s.Hub.Clusters[0].State, s.Hub.Clusters[0].Message = sandboxv1.ClusterState_UNREACHABLE, "nothing heard for 1m0s"
			s.Clusters[0].Lease.Age = new(time.Minute)
			s.Sites["east"].Workers[0] = Workload{Name: "atoll-worker", Wanted: 2, Message: "Deployment does not have minimum availability.",
				Since: now.Add(-time.Minute)}
		},
		"worker-missing": func(s *Snapshot) {
			s.Clusters[0].Lease, s.Sites["east"].Workers = nil, nil
		},
		"worker-scaled-down": func(s *Snapshot) {
			s.Clusters[0].Lease.Holder = ""
			s.Sites["east"].Workers[0] = Workload{Name: "atoll-worker"}
		},
		"worker-outside": func(s *Snapshot) { s.Sites["east"].Workers = nil },
		"installation": func(s *Snapshot) {
			site := s.Sites["east"]
			site.CRDs["sandboxenvs.agents.navix.sh"] = &CRD{Missing: []string{"spec.overrides", "status.scalingGroups"}}
			site.Denied, site.Policies = []string{"delete pods", "atoll-sync: patch sandboxenvs/status"}, policies[1:]
			site.Unread = []Unread{{What: "Pods of atoll-system: forbidden"}, {What: "rights: not read within 15s", Late: true}}
		},
		"another-controller": func(s *Snapshot) {
			status := func(manager string, ago time.Duration) metav1.ManagedFieldsEntry {
				at := metav1.NewTime(now.Add(-ago))
				return metav1.ManagedFieldsEntry{Manager: manager, Subresource: "status", Time: &at}
			}
			pool := func(name string, entries ...metav1.ManagedFieldsEntry) v1alpha1.SandboxPool {
				return v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ManagedFields: entries}}
			}
			s.Clusters[0].Envs[0].ManagedFields = []metav1.ManagedFieldsEntry{status("manager", 10*time.Second), status("atoll-worker", time.Minute)}
			s.Clusters[0].Pools = []v1alpha1.SandboxPool{
				pool("contested", status("manager", 20*time.Second)),
				pool("moved-over", status("manager", time.Hour), status("atoll-worker", time.Minute)),
				pool("left-alone-long-ago", status("manager", 10*time.Minute)),
				pool("ours", status("atoll-worker", time.Second)),
			}
			s.Sites["east"].ForeignLeases = []foreigncontroller.Lease{
				{Namespace: "sandbox", Name: "1a.agents.navix.sh", Holder: "old-0", Reason: foreigncontroller.LeaseHeld,
					Renewed: now.Add(-5 * time.Second), Duration: 15 * time.Second},
				{Namespace: "gone", Name: "atoll-worker", Holder: "x", Reason: foreigncontroller.OlderInstallation, Renewed: now.Add(-time.Hour),
					Duration: 15 * time.Second},
			}
		},
		"pools-alone": func(s *Snapshot) {
			pool := func(name string, containers int, reason v1alpha1.ConditionReason, message string) v1alpha1.SandboxPool {
				p := v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
				p.Spec.Template.Spec.Containers = make([]corev1.Container, containers)
				p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxPoolConditionTemplateConsistent, Status: metav1.ConditionFalse,
					Reason: string(reason), Message: message, LastTransitionTime: metav1.NewTime(now.Add(-time.Minute))}}
				return p
			}
			s.Clusters[0].Pools = []v1alpha1.SandboxPool{
				pool("waits", 0, v1alpha1.ReasonTemplateNotFound, `there is no SandboxTemplate "python"; create it`),
				pool("old", 1, v1alpha1.ReasonTemplateOutdated, "made from revision a, the template is at b"),
			}
		},
		"crds-missing": func(s *Snapshot) {
			s.Sites["east"].CRDs["sandboxpools.agents.navix.sh"] = nil
			s.Clusters, s.Blind = nil, []verify.Blind{{What: "cluster east", Why: "no matches for kind SandboxPool"}}
		},
		"api-server-away": func(s *Snapshot) {
			s.Clusters, s.Sites = nil, map[string]*Site{"east": {Context: "kind-east"}}
			s.Blind = []verify.Blind{{What: "cluster east", Why: "i/o timeout"}, {What: "metrics hub", Why: "404 Not Found"}}
		},
		"env-conditions": func(s *Snapshot) {
			s.condition("Ready", "False", "TemplateNotFound", "py-east: there is no SandboxTemplate")
			s.condition("Federated", "False", "ClustersStale", "the hub has not heard lately from: west")
			s.condition("TemplateConsistent", "False", "TemplateOutdated", "py-east: the template has changed")
			s.condition("AutoscalingActive", "False", "ReplicasContested", "py-east: another writer sets replicas back")
		},
		"env-gaps": func(s *Snapshot) { // told once, by the hub
			s.Hub.Envs[0].MissingClusters, s.Hub.Envs[0].ClustersWithoutEnv = []string{"mars"}, []string{"north"}
			s.condition("Federated", "False", "ClusterMissing", "mars is not registered at the hub; north has no such Env")
		},
		"env-gaps-without-hub": func(s *Snapshot) {
			s.Hub = nil
			s.condition("Federated", "False", "ClusterMissing", "mars is not registered at the hub; north has no such Env")
			s.Clusters[0].Envs = append(s.Clusters[0].Envs, v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "go"}})
			s.Clusters[0].Envs[1].Status.Conditions = []metav1.Condition{{Type: "Federated", Status: "False", Reason: "EnvMissing",
				Message: "north has no such Env"}}
		},
		"env-quiet-conditions": func(s *Snapshot) {
			s.condition("Ready", "True", "MembersReady", "")
			s.condition("AutoscalingActive", "False", "AutoscalingNotConfigured", "")
		},
		"env-too-large": func(s *Snapshot) {
			s.condition("Federated", "False", "TooLarge", "segments are shown as totals")
		},
		"members": func(s *Snapshot) {
			s.Hub.Envs[0].Clusters = append(s.Hub.Envs[0].Clusters, part("north", "Missing", 0, 0), part("south", "Inconsistent", 1, 1),
				part("up", "Active", 2, 0))
		},
		"env-exhausted": func(s *Snapshot) {
			for _, c := range s.Hub.Envs[0].Clusters {
				c.Members[0].Idle, c.Members[0].ReadyIdle, c.Members[0].Pending = 0, 0, 3
			}
			s.Hub.Envs[0].Running = 4
		},
		"env-without-idle": func(s *Snapshot) {
			for _, c := range s.Hub.Envs[0].Clusters {
				c.Members[0].Idle, c.Members[0].ReadyIdle = 0, 0
			}
			s.Hub.Envs[0].Running = 4
		},
		"env-saturated": func(s *Snapshot) {
			for _, c := range s.Hub.Envs[0].Clusters {
				c.Members[0].State = "Saturated"
			}
		},
		"env-out-of-reach": func(s *Snapshot) {
			for _, c := range s.Hub.Envs[0].Clusters {
				c.State = sandboxv1.ClusterState_UNREACHABLE
			}
		},
		"pods": func(s *Snapshot) {
			full := waiting("c", "py-full", "")
			full.Status.ContainerStatuses = nil
			full.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable",
				Message: "0/3 nodes are available"}}
			s.Clusters[0].Pods = []corev1.Pod{waiting("a", "py-east", "ImagePullBackOff"), waiting("b", "py-east", "ErrImagePull"),
				waiting("d", "py-east", "CrashLoopBackOff"), waiting("e", "py-east", "ContainerCreating"), full}
			s.Sites["east"].Pods = []corev1.Pod{waiting("atoll-worker-1", "", "ErrImagePull")}
		},
		"clocks": func(s *Snapshot) {
			s.Clusters[0].Clock.Offset, s.Hub.Clock.Offset = 10*time.Minute, -time.Hour
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			change(s)
			found := Diagnose(s)
			for _, d := range found {
				if d.Do == "" || d.What == "" || d.Object == "" || d.Severity == "" || d.Reason == "" {
					t.Errorf("incomplete: %+v", d)
				}
			}
			golden(t, filepath.Join("testdata", name+".txt"), Text(found))
		})
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		must.Succeed(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must.Succeed(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got; -update writes it):\n%s", diff)
	}
}

func TestJSON(t *testing.T) {
	data, err := json.Marshal(Diagnosis{Reason: NoLeader, Severity: Critical, Cluster: "east", Object: "lease", What: "w", Do: "d",
		Since: 90 * time.Second})
	want := `{"reason":"NoLeader","severity":"critical","cluster":"east","object":"lease","what":"w","do":"d","since":"1m30s"}`
	if err != nil || string(data) != want {
		t.Errorf("%s, %v; want %s", data, err, want)
	}
}

// A Deployment that is not available tells why, and since when.
func TestUnavailableWorkers(t *testing.T) {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "atoll-worker"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))},
		Status: appsv1.DeploymentStatus{AvailableReplicas: 1, Conditions: []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, Message: "too few", LastTransitionTime: metav1.NewTime(now),
		}}},
	}
	want := Workload{Name: "atoll-worker", Wanted: 2, Available: 1, Message: "too few", Since: now}
	if diff := cmp.Diff(want, workloadOf(d)); diff != "" {
		t.Errorf("not available (-want +got):\n%s", diff)
	}
	d.Status.Conditions[0].Status = corev1.ConditionTrue
	want.Message, want.Since = "", time.Time{}
	if diff := cmp.Diff(want, workloadOf(d)); diff != "" {
		t.Errorf("available (-want +got):\n%s", diff)
	}
}

// The comparison uses the fields of this build's own CRDs, and finds a removed field.
func TestInstalledCRDs(t *testing.T) {
	for name, kind := range kinds {
		crd := readCRD(t, name)
		if got := compare(crd, kind); len(got.Missing) != 0 {
			t.Errorf("the CRD %s of this build lacks %v", name, got.Missing)
		}
	}
	crd := readCRD(t, "sandboxenvs.agents.navix.sh")
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	delete(schema.Properties["spec"].Properties, "overrides")
	delete(schema.Properties["status"].Properties["clusters"].Items.Schema.Properties, "isLocal")
	delete(schema.Properties["spec"].Properties["clusters"].Items.Schema.Properties["members"].Items.Schema.Properties["spec"].Properties,
		"idleImage")
	want := []string{"spec.clusters[].members[].spec.idleImage", "spec.overrides", "status.clusters[].isLocal"}
	if got := compare(crd, reflect.TypeFor[v1alpha1.SandboxEnv]()).Missing; !slices.Equal(got, want) {
		t.Errorf("missing %v, want %v", got, want)
	}
	crd.Spec.Versions[0].Name = "v0"
	if got := compare(crd, reflect.TypeFor[v1alpha1.SandboxEnv]()).Missing; !slices.Equal(got, []string{"version v1alpha1"}) {
		t.Errorf("of another version: missing %v", got)
	}
}

func readCRD(t *testing.T, name string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	plural, group, _ := strings.Cut(name, ".")
	data, err := os.ReadFile(filepath.Join("..", "..", "charts", "worker", "files", "crds", group+"_"+plural+".yaml"))
	must.Succeed(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must.Succeed(t, yaml.Unmarshal(data, crd))
	return crd
}

// TestQuestions: where namespaces are listed, rights are needed in each of them, and in the cluster only for what has no namespace.
func TestQuestions(t *testing.T) {
	text := func(served ...string) string {
		var lines []string
		for _, q := range questions("atoll-system", served) {
			if q.Verb == "get" || q.Verb == "patch" && q.account == "atoll-sync" || q.Resource == "leases" {
				lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", q, q.Namespace, q.Name)))
			}
		}
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	all := strings.Split(text(), "\n")
	for _, want := range []string{"get pods", "get namespaces", "get namespaces  kube-system", "list leases",
		"atoll-sync: patch sandboxenvs/status", "update leases atoll-system atoll-worker"} {
		if !slices.Contains(all, want) {
			t.Errorf("of all namespaces: %q is not in %q", want, all)
		}
	}
	some := strings.Split(text("dev", "prod"), "\n")
	for _, want := range []string{"get pods dev", "get pods prod", "get namespaces  dev", "get namespaces  prod",
		"get namespaces  kube-system", "atoll-sync: patch sandboxenvs/status prod", "update leases atoll-system atoll-worker"} {
		if !slices.Contains(some, want) {
			t.Errorf("of two namespaces: %q is not in %q", want, some)
		}
	}
	for _, line := range []string{"get pods", "get namespaces", "list leases"} {
		if slices.Contains(some, line) {
			t.Errorf("of two namespaces: %q is asked for", line)
		}
	}
}

func TestNamespacesOfAWorker(t *testing.T) {
	for want, c := range map[string]corev1.Container{
		"[]":      {Args: []string{"--cluster-id=east", "--log-level=info"}},
		"[a b]":   {Args: []string{"--namespaces=a, b"}},
		"[a b c]": {Command: []string{"atoll-worker", "--namespaces", "a,b", "--namespaces=c"}},
		"[a]":     {Env: []corev1.EnvVar{{Name: "ATOLL_NAMESPACES", Value: "a"}}},
		"[b]":     {Args: []string{"--namespaces=b"}, Env: []corev1.EnvVar{{Name: "ATOLL_NAMESPACES", Value: "a"}}},
	} {
		if got := fmt.Sprint(namespacesOf(&corev1.PodSpec{Containers: []corev1.Container{c}})); got != want {
			t.Errorf("%v: %s, want %s", c, got, want)
		}
	}
}

// The required permissions and policies are those of the worker's chart.
func TestChart(t *testing.T) {
	granted := map[right]bool{}
	for file, account := range map[string]string{"worker_role.yaml": "atoll-worker", "sync_role.yaml": "atoll-sync",
		"catalog_role.yaml": "atoll-catalog"} {
		for _, document := range documents(t, "rbac", file) {
			var role rbacv1.Role
			must.Succeed(t, yaml.Unmarshal([]byte(document), &role))
			for _, rule := range role.Rules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						for _, name := range append(rule.ResourceNames, "")[:max(1, len(rule.ResourceNames))] {
							granted[right{account, group, resource, name, role.Kind == "Role", strings.Join(rule.Verbs, " ")}] = true
						}
					}
				}
			}
		}
	}
	asked := map[right]bool{}
	for _, r := range needed {
		asked[r] = true
	}
	if diff := cmp.Diff(granted, asked, cmp.AllowUnexported(right{})); diff != "" {
		t.Errorf("(-the chart's roles +what doctor asks for):\n%s", diff)
	}
	var names []string
	files, err := os.ReadDir(filepath.Join("..", "..", "charts", "worker", "files", "policies"))
	must.Succeed(t, err)
	for _, f := range files {
		for _, document := range documents(t, "policies", f.Name()) {
			var object metav1.PartialObjectMetadata
			must.Succeed(t, yaml.Unmarshal([]byte(document), &object))
			if object.Kind == "ValidatingAdmissionPolicy" {
				names = append(names, object.Name)
			}
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff(names, policies); diff != "" {
		t.Errorf("(-the chart's policies +what doctor looks for):\n%s", diff)
	}
}

func documents(t *testing.T, path ...string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "charts", "worker", "files"}, path...)...))
	must.Succeed(t, err)
	var out []string
	for _, document := range strings.Split("\n"+string(data), "\n---\n") {
		if strings.TrimSpace(document) != "" {
			out = append(out, document)
		}
	}
	return out
}
