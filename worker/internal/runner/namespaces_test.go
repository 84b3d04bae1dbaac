// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/doctor"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/verify"
	"navix.sh/atoll/worker/internal/netpolicy"
)

// TestI14RolesOfNamespaces runs a worker whose rights are those that the chart gives it in two namespaces, and nothing else.
func TestI14RolesOfNamespaces(t *testing.T) {
	var prod, dev, other *place
	var chart harness.Objects
	s := newSiteWith(t, func(t *testing.T, s *site) {
		prod, dev, other = s.place(t), s.place(t), s.place(t)
		chart = applyRights(t, s, prod.Namespace, dev.Namespace)
	})
	testDoctor(t, s, chart, dev.Namespace, other.Namespace)
	s.run(t, func(o *Options) {
		o.namespaces = []string{prod.Namespace, dev.Namespace}
		o.network.mode, o.network.from = netpolicy.Kubernetes, "app=worker"
	})
	testNamespaces(prod, other)
	testVisibility(dev)
	testNetworkPolicies(prod)
	checkRights(t, s.plane)
}

// testDoctor: the doctor asks for the rights in the namespaces that the worker serves, and tells of those that are missing there.
func testDoctor(t *testing.T, s *site, chart harness.Objects, served, other string) {
	denied := func() []string {
		place := doctor.Place{ID: "east", Namespace: "atoll-system", Config: s.plane.Config()}
		seen := doctor.Look(s.ctx, &verify.Federation{}, []doctor.Place{place}, time.Now()).Sites["east"]
		if len(seen.Unread) > 0 {
			t.Errorf("unread: %v", seen.Unread)
		}
		return seen.Denied
	}
	if got := denied(); len(got) > 0 {
		t.Errorf("of a worker that runs elsewhere: denied %v", got)
	}
	d, err := harness.As[appsv1.Deployment](chart, "Deployment", "atoll-worker")
	must.Succeed(t, err)
	d.Spec.Replicas = new(int32)
	must.Succeed(t, s.live.Create(s.ctx, d))
	if got := denied(); len(got) > 0 {
		t.Errorf("as the chart renders it: denied %v", got)
	}
	setArg := func(change func(string) string) { // the Deployment's controller writes as well
		before := d.DeepCopy()
		args := d.Spec.Template.Spec.Containers[0].Args
		n := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--namespaces=") })
		args[n] = change(args[n])
		must.Succeed(t, s.live.Patch(s.ctx, d, client.MergeFrom(before)))
	}
	setArg(func(arg string) string { return strings.ReplaceAll(arg, served, other) })
	if got := denied(); !slices.Contains(got, "create pods in "+other) ||
		!slices.Contains(got, "atoll-sync: patch sandboxenvs/status in "+other) ||
		slices.ContainsFunc(got, func(what string) bool { return what != "get namespaces" && !strings.HasSuffix(what, " in "+other) }) {
		t.Errorf("with a namespace without rights: denied %v", got)
	}
	setArg(func(string) string { return "--log-level=info" })
	if got := denied(); !slices.Contains(got, "create pods") || slices.Contains(got, "list nodes") {
		t.Errorf("of a worker of all namespaces: denied %v", got)
	}
	must.Succeed(t, s.live.Delete(s.ctx, d))
}

// applyRights applies what the chart renders for these namespaces, and returns all that it renders.
func applyRights(t *testing.T, s *site, namespaces ...string) harness.Objects {
	t.Helper()
	helm, err := harness.New(s.ctx, t.TempDir())
	must.Succeed(t, err)
	objects, err := helm.Template(s.ctx, harness.Release{
		Name: "atoll-worker", Namespace: "atoll-system", Chart: helm.Chart("worker"),
		Values: "clusterID: east\nnamespaces: [" + strings.Join(namespaces, ", ") + "]",
	})
	must.Succeed(t, err)
	rights := slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
		return !slices.Contains([]string{"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}, o.GetKind())
	})
	manifest, err := rights.Manifest()
	must.Succeed(t, err)
	_, err = s.plane.Kubectl(s.ctx, "create", "namespace", "atoll-system")
	must.Succeed(t, err)
	_, err = s.plane.KubectlInput(s.ctx, strings.NewReader(manifest), "apply", "--server-side", "-f", "-")
	must.Succeed(t, err)
	return objects
}

func testNamespaces(p, other *place) {
	other.apply(templateManifest + "---" + envManifest)
	p.apply(templateManifest + "---" + envManifest)
	p.awaitIdle("member", 2)
	running := p.mustClaim("env")
	p.awaitIdle("member", 1)
	checkStillRuns(p, running.GetId())
	p.release(running.GetId())
	p.awaitEnded(running.GetId())

	if conditions := other.Env("env").Status.Conditions; len(conditions) > 0 || len(other.pods("member")) > 0 {
		p.t.Errorf("an Env of a namespace that is not listed is served: %+v", conditions)
	}
	_, err := p.envs.RefreshEnv(p.ctx, &sandboxv1.RefreshEnvRequest{Namespace: other.Namespace, Name: "env"})
	if err == nil || problem.FromError(err).Reason != problem.NotFound {
		p.t.Errorf("a refresh of it: %v", err)
	}
	if _, err := other.claim("env"); err == nil || problem.FromError(err).Reason != problem.NotFound {
		p.t.Errorf("a claim of it: %v", err)
	}
}

// testVisibility: an Env or pool of a namespace that a template is not for gets nothing of it, and keeps what it has.
func testVisibility(p *place) {
	const consistent = v1alpha1.SandboxEnvConditionTemplateConsistent
	hidden := strings.Replace(templateManifest, "spec:\n", "spec:\n  visibility: {rules: [{team: red}]}\n", 1)
	if hidden == templateManifest {
		p.t.Fatal("the template's manifest has no spec to add to")
	}
	p.kubectl("", "label", "namespace", p.Namespace, "scheduling.navix.sh/team=blue")
	mine := strings.Replace(envManifest, "namespace: NS}", "namespace: NS, labels: {scheduling.navix.sh/team: red}}", 1)
	p.apply(hidden + "---" + mine + "---" + aloneManifest)
	message := p.awaitCondition("env", "env", v1alpha1.SandboxEnvConditionReady, metav1.ConditionFalse, v1alpha1.ReasonTemplateNotVisible)
	if !strings.Contains(message, "is not visible to namespace "+p.Namespace) || strings.Contains(message, "red") {
		p.t.Errorf("the Env tells %q", message)
	}
	p.awaitCondition("env", "env", consistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateNotVisible)
	p.awaitCondition("pool", "alone", consistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateNotVisible)
	if err := p.live.Get(p.ctx, p.Key("member"), &v1alpha1.SandboxPool{}); client.IgnoreNotFound(err) != nil || err == nil {
		p.t.Errorf("the Env has a pool of the template: %v", err)
	}
	if pool := p.Pool("alone"); len(pool.Spec.Template.Spec.Containers) > 0 || len(p.pods("alone")) > 0 {
		p.t.Errorf("the pool has the template's fields: %+v", pool.Spec)
	}

	p.kubectl("", "label", "namespace", p.Namespace, "--overwrite", "scheduling.navix.sh/team=red")
	p.awaitIdle("member", 2)
	p.awaitIdle("alone", 2)

	// I6: what exists goes on when the template is hidden again, and takes nothing of it any more.
	running := p.mustClaim("env")
	p.awaitIdle("member", 1)
	before, spec := p.pods("member"), p.Pool("member").Spec
	p.apply(strings.NewReplacer("team: red", "team: green", "python:3", "python:4").Replace(hidden))
	p.awaitCondition("env", "env", consistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateNotVisible)
	p.awaitCondition("env", "env", v1alpha1.SandboxEnvConditionReady, metav1.ConditionTrue, v1alpha1.ReasonMembersReady)
	p.awaitCondition("pool", "alone", consistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateNotVisible)
	out, err := p.envs.RefreshEnv(p.ctx, &sandboxv1.RefreshEnvRequest{Namespace: p.Namespace, Name: "env", DryRun: true})
	p.Must(err)
	for _, m := range out.GetMembers() {
		if m.GetReason() != string(v1alpha1.ReasonTemplateNotVisible) || len(m.GetChanges()) > 0 || strings.Contains(m.String(), "python:4") {
			p.t.Errorf("a refresh tells %v", m)
		}
	}
	p.sameAsBefore("member", before, &spec)
	checkStillRuns(p, running.GetId())
	p.mustClaim("env")
}

// testNetworkPolicies: a pool's Pods are closed in before the first of them exists, opened by its template, and closed again when that
// cannot be read.
func testNetworkPolicies(p *place) {
	const applied = v1alpha1.SandboxPoolConditionNetworkPolicyApplied
	policy := func(pool string) *networkingv1.NetworkPolicy {
		found := &networkingv1.NetworkPolicy{}
		p.Must(p.live.Get(p.ctx, p.Key(netpolicy.NameOf(pool)), found))
		return found
	}
	opened := func(pool string) []networkingv1.NetworkPolicyEgressRule {
		found := &networkingv1.NetworkPolicy{}
		p.Must(client.IgnoreNotFound(p.live.Get(p.ctx, p.Key(netpolicy.OpeningNameOf(pool)), found)))
		return found.Spec.Egress
	}
	closed := policy("member") // of before
	if ingress := closed.Spec.Ingress; len(closed.Spec.Egress) > 0 || len(closed.Spec.PolicyTypes) != 2 || len(ingress) != 1 ||
		len(ingress[0].From) != 1 ||
		!maps.Equal(ingress[0].From[0].NamespaceSelector.MatchLabels, map[string]string{"kubernetes.io/metadata.name": "atoll-system"}) ||
		!maps.Equal(ingress[0].From[0].PodSelector.MatchLabels, map[string]string{"app": "worker"}) {
		p.t.Errorf("closed is %+v", closed.Spec)
	}
	for _, pod := range p.pods("member") {
		if pod.CreationTimestamp.Before(&closed.CreationTimestamp) {
			p.t.Errorf("Pod %s was made before its pool's policy", pod.Name)
		}
	}
	p.awaitCondition("pool", "member", applied, metav1.ConditionTrue, v1alpha1.ReasonNetworkPolicyApplied)

	// The template's annotation reaches pools with their fields. Metadata services are opened by it alone.
	p.kubectl("", "annotate", "sandboxtemplate", "TEMPLATE", "agentbox.navix.sh/egress=dns, 10.0.0.0/8 443, 169.254.169.254/32 80")
	p.apply(aloneManifest)
	p.awaitIdle("alone", 2)
	message := p.awaitCondition("pool", "alone", applied, metav1.ConditionTrue, v1alpha1.ReasonNetworkPolicyApplied)
	if open := opened("alone"); !strings.Contains(message, "10.0.0.0/8 443") || len(open) != 4 ||
		open[2].To[0].IPBlock.CIDR != "10.0.0.0/8" || open[3].To[0].IPBlock.CIDR != "169.254.169.254/32" {
		p.t.Errorf("%q opens %+v", message, open)
	}
	denied, err := p.sandboxes.CreateSandbox(p.ctx, &sandboxv1.CreateSandboxRequest{Namespace: p.Namespace, Env: "env", DenyEgress: true})
	p.Must(err)
	if pod := p.pods("member")[denied.GetPod()]; !denied.GetEgressDenied() || pod.Labels[v1alpha1.EgressLabelKey] != v1alpha1.EgressDenied {
		p.t.Errorf("a claim that denies egress gets %v in a Pod with labels %v", denied, pod.Labels)
	}
	_, err = p.sandboxes.ReleaseSandbox(p.ctx, &sandboxv1.ReleaseSandboxRequest{Id: denied.GetId()})
	p.Must(err)
	p.kubectl("", "annotate", "sandboxpool", "member", "agentbox.navix.sh/egress=192.0.2.0/24, 169.254.169.0/24")
	if message = p.awaitCondition("pool", "member", applied, metav1.ConditionFalse, v1alpha1.ReasonEgressInvalid); !strings.Contains(message,
		"169.254.169.0/24") {
		p.t.Errorf("a pool that opens metadata services tells %q", message)
	}
	planetest.Eventually(p.t, "the readable part", func() error {
		egress := opened("member")
		return wait.If(len(egress) == 1 && egress[0].To[0].IPBlock.CIDR == "192.0.2.0/24", egress)
	})
	before := p.pods("alone")
	p.kubectl("", "annotate", "sandboxpool", "alone", "--overwrite", "agentbox.navix.sh/egress=10.0.0.1/8")
	if message = p.awaitCondition("pool", "alone", applied, metav1.ConditionFalse, v1alpha1.ReasonEgressInvalid); !strings.Contains(message,
		"its network is 10.0.0.0/8") {
		p.t.Errorf("an annotation that cannot be read: %q", message)
	}
	planetest.Eventually(p.t, "closed", func() error {
		egress := opened("alone")
		return wait.If(len(egress) == 0, egress)
	})

	// It is kept, is written once, and goes with its pool. Pods go on.
	version := policy("alone").ResourceVersion
	p.kubectl("", "annotate", "sandboxpool", "alone", "note=x")
	p.kubectl("", "delete", "networkpolicy", netpolicy.NameOf("member"))
	planetest.Eventually(p.t, "the policy again", func() error {
		return p.live.Get(p.ctx, p.Key(netpolicy.NameOf("member")), &networkingv1.NetworkPolicy{})
	})
	if now := policy("alone").ResourceVersion; now != version {
		p.t.Errorf("the policy was written without a change: %s, %s", version, now)
	}
	for name, pod := range before {
		if now, ok := p.pods("alone")[name]; !ok || now.UID != pod.UID {
			p.t.Errorf("Pod %s is gone", name)
		}
	}
	p.kubectl("", "delete", "sandboxpool", "alone")
	p.awaitGone(&networkingv1.NetworkPolicy{}, netpolicy.NameOf("alone"))
}
