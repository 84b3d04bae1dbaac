// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

const templateManifest = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxTemplate
metadata: {name: TEMPLATE, labels: {kept: template, own: template}}
spec:
  version: v1
  idleImage: test.local/idle:1
  runtimes: [{name: e2b, port: 49983}]
  template: {spec: {automountServiceAccountToken: false, containers: [{name: main, image: "test.local/python:3"}]}}
`

const aloneManifest = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxPool
metadata: {name: alone, namespace: NS, labels: {own: pool}}
spec: {replicas: 2, templateName: TEMPLATE, runtimes: [{name: mine, port: 8000}]}
`

// TestAWorker runs one worker, in one cluster, for tests that need no other flags and change nothing that they share. Bad input is
// last: it installs a policy.
func TestAWorker(t *testing.T) {
	s := newSite(t)
	s.run(t, nil)
	t.Run("pools without an Env", func(t *testing.T) { poolsWithoutEnv(t, s) })
	checkRights(t, s.plane) // before quotas forbid Pods
	t.Run("scaling groups", func(t *testing.T) { scalingGroups(t, s) })
	t.Run("bad input", func(t *testing.T) { badInput(t, s) })
}

// poolsWithoutEnv is the life of pools that no Env owns, and of the templates that they name.
func poolsWithoutEnv(t *testing.T, s *site) {
	t.Run("life", func(t *testing.T) { testAlone(s.place(t)) })
	t.Run("template faults", func(t *testing.T) { testTemplateFaults(s.place(t)) })
	t.Run("an Env of the name goes first", func(t *testing.T) { testEnvOfTheName(s.place(t)) })
}

func testAlone(p *place) {
	const consistent = v1alpha1.SandboxPoolConditionTemplateConsistent
	p.apply(aloneManifest)
	p.awaitCondition("pool", "alone", consistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)
	if pods := p.pods("alone"); len(pods) > 0 || len(p.Pool("alone").Spec.Template.Spec.Containers) > 0 {
		p.t.Errorf("without its template the pool has Pods %v", slices.Collect(maps.Keys(pods)))
	}
	p.apply(templateManifest)
	p.awaitIdle("alone", 2)
	p.awaitCondition("pool", "alone", consistent, metav1.ConditionTrue, v1alpha1.ReasonTemplateMatches)
	pool := p.Pool("alone")
	if pool.Spec.IdleImage != "test.local/idle:1" || pool.Spec.Template.Spec.Containers[0].Image != "test.local/python:3" ||
		len(pool.Spec.Runtimes) != 1 || pool.Spec.Runtimes[0].Name != "mine" || pool.Labels["own"] != "pool" ||
		pool.Labels["kept"] != "template" {
		p.t.Errorf("inline does not go before the template: labels %v, spec %+v", pool.Labels, pool.Spec)
	}
	revision := pool.Annotations[v1alpha1.TemplateRevisionAnnotationKey]
	if revision == "" || pool.Annotations[v1alpha1.SandboxPoolTemplateNameAnnotationKey] != p.fill("TEMPLATE") ||
		pool.Annotations[v1alpha1.SandboxPoolTemplateVersionAnnotationKey] != "v1" {
		p.t.Errorf("stamped %v", pool.Annotations)
	}
	if message := p.awaitCondition("template", "TEMPLATE", "Available", metav1.ConditionTrue,
		v1alpha1.ReasonValidated); !strings.Contains(message, revision) {
		p.t.Errorf("the template tells %q", message)
	}

	// It takes claims under its own name, and is reported as an Env of that name.
	running := p.mustClaim("alone")
	if running.GetEnv() != "alone" || running.GetPool() != "alone" || running.GetPhase() != sandboxv1.Phase_RUNNING {
		p.t.Errorf("claimed %v", running)
	}
	shown, err := p.envs.GetEnv(p.ctx, &sandboxv1.GetEnvRequest{Namespace: p.Namespace, Name: "alone"})
	if err != nil || len(shown.GetClusters()) != 1 || shown.GetDesired() != 2 {
		p.t.Errorf("shown as %v, %v", shown, err)
	}
	list, err := p.envs.ListEnvs(p.ctx, &sandboxv1.ListEnvsRequest{Namespace: p.Namespace})
	if err != nil || len(list.GetEnvs()) != 1 {
		p.t.Errorf("listed as %v, %v", list, err)
	}

	// A newer template is reported, and changes nothing.
	p.awaitIdle("alone", 1)
	before, spec := p.pods("alone"), p.Pool("alone").Spec
	p.apply(strings.ReplaceAll(templateManifest, "python:3", "python:4"))
	p.awaitCondition("pool", "alone", consistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateOutdated)
	message := p.awaitCondition("template", "TEMPLATE", "Degraded", metav1.ConditionTrue, v1alpha1.ReasonOlderRevisionsInUse)
	if !strings.Contains(message, p.Namespace+"/alone at "+revision) {
		p.t.Errorf("the template tells %q", message)
	}
	p.sameAsBefore("alone", before, &spec)

	// Re-applying the manifest loses nothing.
	p.apply(aloneManifest)
	p.sameAsBefore("alone", before, &spec)

	// Without its template it continues, and takes claims.
	p.kubectl("", "delete", "sandboxtemplate", "TEMPLATE")
	p.awaitCondition("pool", "alone", consistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)
	p.sameAsBefore("alone", before, &spec)
	second := p.mustClaim("alone")

	// It is completed again when it has lost its fields; running sandboxes continue.
	p.apply(strings.ReplaceAll(templateManifest, "python:3", "python:5"))
	p.awaitCondition("pool", "alone", consistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateOutdated)
	p.kubectl("", "patch", "sandboxpool", "alone", "--type=json", "-p",
		`[{"op":"remove","path":"/spec/template"},{"op":"remove","path":"/spec/idleImage"}]`)
	p.awaitCondition("pool", "alone", consistent, metav1.ConditionTrue, v1alpha1.ReasonTemplateMatches)
	if image := p.Pool("alone").Spec.Template.Spec.Containers[0].Image; image != "test.local/python:5" {
		p.t.Errorf("made anew with %s", image)
	}
	p.awaitCondition("template", "TEMPLATE", "Degraded", metav1.ConditionFalse, v1alpha1.ReasonAllCurrent)
	checkStillRuns(p, running.GetId())
	checkStillRuns(p, second.GetId())

	// When it is deleted, running sandboxes end on their own.
	p.kubectl("", "delete", "sandboxpool", "alone", "--wait=false")
	p.release(running.GetId())
	p.release(second.GetId())
	p.awaitEnded(running.GetId())
	p.awaitGone(&v1alpha1.SandboxPool{}, "alone")
}

// sameAsBefore checks that a pool's Pods and spec are what they were.
func (p *place) sameAsBefore(pool string, before map[string]corev1.Pod, spec *v1alpha1.SandboxPoolSpec) {
	p.t.Helper()
	now := p.Pool(pool).Spec
	if !equal(&now, spec) {
		p.t.Errorf("the spec of %s was %+v, is %+v", pool, spec, now)
	}
	after := p.pods(pool)
	for name := range before {
		if pod := before[name]; after[name].UID != pod.UID {
			p.t.Errorf("Pod %s of %s is gone", name, pool)
		}
	}
}

func testTemplateFaults(p *place) {
	p.apply(strings.Replace(templateManifest, `image: "test.local/python:3"`, `imagePullPolicy: Always`, 1))
	p.apply(aloneManifest)
	message := p.awaitCondition("template", "TEMPLATE", "Available", metav1.ConditionFalse, v1alpha1.ReasonTemplateInvalid)
	if !strings.Contains(message, "containers[0].image is empty") {
		p.t.Errorf("the template tells %q", message)
	}
	message = p.awaitCondition("pool", "alone", v1alpha1.SandboxPoolConditionTemplateConsistent, metav1.ConditionFalse,
		v1alpha1.ReasonTemplateInvalid)
	if !strings.Contains(message, "containers[0].image is empty") || len(p.pods("alone")) > 0 {
		p.t.Errorf("the pool tells %q", message)
	}
	planetest.Eventually(p.t, "a claim to be told what a person must cure", func() error {
		_, err := p.claim("alone")
		told := problem.FromError(err)
		return wait.If(told != nil && told.Reason == problem.Misconfigured &&
			strings.Contains(told.Message, "containers[0].image is empty"), err)
	})
	p.apply(templateManifest)
	p.awaitIdle("alone", 2)
	p.awaitCondition("template", "TEMPLATE", "Available", metav1.ConditionTrue, v1alpha1.ReasonValidated)
	p.kubectl("", "delete", "sandboxpool", "alone")
}

func testEnvOfTheName(p *place) {
	p.apply(templateManifest + "---" + aloneManifest)
	p.awaitIdle("alone", 2)
	p.apply(`
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: alone, namespace: NS}
spec:
  mode: WarmPool
  templateRef: {name: TEMPLATE}
  clusters: [{clusterID: east, members: [{name: other, spec: {replicas: 1}}]}]
`)
	p.awaitIdle("other", 1)
	if got := p.mustClaim("alone"); got.GetPool() != "other" {
		p.t.Errorf("claimed of pool %s, want the Env's", got.GetPool())
	}
	list, err := p.envs.ListEnvs(p.ctx, &sandboxv1.ListEnvsRequest{Namespace: p.Namespace})
	if err != nil || len(list.GetEnvs()) != 1 {
		p.t.Errorf("listed as %v, %v", list, err)
	}
}

// formerManifest is a pool as the former system made them; %s are more labels.
const formerManifest = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxPool
metadata:
  name: former
  namespace: NS
  labels: {agentbox.navix.sh/managed-by: sandbox-api-server, scheduling.navix.sh/team: red}
  annotations: {agentbox.navix.sh/template-name: TEMPLATE, agentbox.navix.sh/overrides: '{"resources":{"limits":{"cpu":"9"}},"image":"x"}'}
spec:
  replicas: 3
  templateName: TEMPLATE
  template: {spec: {automountServiceAccountToken: false, containers: [{name: main, image: "test.local/python:3", ` +
	`resources: {requests: {cpu: 10m}}}]}}
`

// TestAdoption gives the pools of a former system Envs of their names; running sandboxes do not notice.
func TestAdoption(t *testing.T) {
	s := newSite(t)
	stop := s.run(t, nil)
	p := s.place(t)
	p.apply(templateManifest + "---" + formerManifest + "---" + strings.NewReplacer("name: former", "name: byhand",
		"agentbox.navix.sh/managed-by: sandbox-api-server, ", "").Replace(formerManifest))
	p.awaitIdle("former", 3)
	p.awaitIdle("byhand", 3)
	running := p.mustClaim("former")
	p.awaitIdle("former", 2)
	before, spec := p.pods("former"), p.Pool("former").Spec
	stop()

	stop = s.run(t, func(o *Options) { o.pools.adopt = "label" })
	p.awaitEvent("former", "PoolAdopted")
	p.awaitCondition("env", "former", v1alpha1.SandboxEnvConditionReady, metav1.ConditionTrue, v1alpha1.ReasonMembersReady)
	checkAdopted(p, before, &spec)
	if got := p.mustClaim("former"); got.GetEnv() != "former" || got.GetPool() != "former" {
		t.Errorf("claimed %v", got)
	}
	if err := s.live.Get(s.ctx, p.Key("byhand"), &v1alpha1.SandboxEnv{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("a pool that was made by hand has an Env: %v", err)
	}

	// From here on the Env scales it, also after a restart, and is created once.
	stop()
	uid := p.Env("former").UID
	s.run(t, func(o *Options) { o.pools.adopt = "all" })
	p.awaitEvent("byhand", "PoolAdopted")
	if now := p.Env("former").UID; now != uid {
		t.Errorf("the Env was %s, is %s", uid, now)
	}
	p.kubectl("", "patch", "sandboxenv", "former", "--type=json", "-p",
		`[{"op":"replace","path":"/spec/clusters/0/members/0/spec/replicas","value":4}]`)
	p.awaitIdle("former", 2)
	checkStillRuns(p, running.GetId())

	// When its Env is deleted, idle Pods are deleted, and running sandboxes end at their release.
	p.kubectl("", "delete", "sandboxenv", "former", "--wait=false")
	p.awaitGone(&v1alpha1.SandboxEnv{}, "former")
	planetest.Eventually(t, "the end of idle Pods", func() error { return phases(p.pods("former"), v1alpha1.SandboxPhaseIdle, 0) })
	checkStillRuns(p, running.GetId())

	// When its Env is deleted without it, it continues alone, and gets no other Env.
	p.kubectl("", "delete", "sandboxenv", "byhand", "--cascade=orphan")
	kept := p.Pool("byhand")
	if got := p.mustClaim("byhand"); got.GetEnv() != "byhand" {
		t.Errorf("claimed %v", got)
	}
	if err := s.live.Get(s.ctx, p.Key("byhand"), &v1alpha1.SandboxEnv{}); err == nil {
		t.Error("the Env is back")
	}
	if v1alpha1.HasEnvOwner(p.Pool("byhand")) || p.Pool("byhand").UID != kept.UID {
		t.Error("the pool was not left as it was")
	}
	checkRights(t, s.plane)
}

func checkAdopted(p *place, before map[string]corev1.Pod, spec *v1alpha1.SandboxPoolSpec) {
	p.t.Helper()
	p.sameAsBefore("former", before, spec)
	pool, env := p.Pool("former"), p.Env("former")
	if len(pool.OwnerReferences) != 1 || pool.OwnerReferences[0].UID != env.UID || metav1.GetControllerOf(pool) != nil {
		p.t.Errorf("owned by %+v", pool.OwnerReferences)
	}
	if env.Spec.TemplateRef.Name != p.fill("TEMPLATE") || len(env.Spec.Clusters) != 1 || len(env.Spec.Clusters[0].Members) != 1 {
		p.t.Fatalf("the Env is %+v", env.Spec)
	}
	member := env.Spec.Clusters[0].Members[0]
	if member.Name != "former" || !equal(&member.Spec, spec) || member.Config.ScalingGroup != "" ||
		!member.Config.InlineResources.Requests.Cpu().Equal(*spec.Template.Spec.Containers[0].Resources.Requests.Cpu()) ||
		member.Metadata.Labels["scheduling.navix.sh/team"] != "red" {
		p.t.Errorf("the member is %+v", member)
	}
	if message := p.awaitCondition("env", "former", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionTrue,
		v1alpha1.ReasonTemplateMatches); message == "" {
		p.t.Error("no message")
	}
}

func checkStillRuns(p *place, id string) {
	p.t.Helper()
	got, err := p.sandboxes.GetSandbox(p.ctx, &sandboxv1.GetSandboxRequest{Id: id})
	if err != nil || got.GetPhase() != sandboxv1.Phase_RUNNING {
		p.t.Errorf("%s is %v, %v", id, got.GetPhase(), err)
	}
}

func equal(a, b *v1alpha1.SandboxPoolSpec) bool { return equality.Semantic.DeepEqual(a, b) }

// phases checks how many of the Pods are in a phase.
func phases(pods map[string]corev1.Pod, phase string, want int) error {
	n := 0
	for _, pod := range pods {
		if pod.Labels[v1alpha1.SandboxPhaseLabelKey] == phase {
			n++
		}
	}
	return wait.If(n == want, fmt.Sprintf("%d Pods are %s, want %d", n, phase, want))
}

// TestAnotherController leaves the pools and Envs of an active controller alone, and takes them over when it is gone. Its lease
// is the one that the operator has named; I14: a lease that a user of a namespace created stops nothing, whatever its name.
func TestAnotherController(t *testing.T) {
	s := newSite(t)
	p := s.place(t)
	const named = "1a2b3c4d.agents.navix.sh"
	lease := func(name, holder string) {
		t.Helper()
		p.kubectl(fmt.Sprintf(`
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: %s, namespace: NS}
spec: {holderIdentity: %q, leaseDurationSeconds: 2147483647, renewTime: %q}
`, name, holder, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")), "apply", "-f", "-")
	}
	naming := func(o *Options) { o.pools.foreignLeases = []string{p.Namespace + "/" + named} }
	for _, name := range []string{"x.agents.navix.sh", "sandbox-api-server", "atoll-worker"} {
		lease(name, "editor") // before this worker's own
	}
	stop := s.run(t, naming)
	p.apply(templateManifest + "---" + envManifest)
	p.awaitIdle("member", 2)
	running := p.mustClaim("env")
	p.awaitIdle("member", 1)

	lease(named, "another")
	p.awaitEvent("member", "LeaseOfAnotherHeld")
	p.awaitEvent("env", "LeaseOfAnotherHeld")
	before := p.pods("member")
	p.kubectl("", "patch", "sandboxenv", "env", "--type=json", "-p",
		`[{"op":"replace","path":"/spec/clusters/0/members/0/spec/replicas","value":3}]`)
	env, pool := p.Env("env").ResourceVersion, p.Pool("member").ResourceVersion
	if _, err := p.claim("env"); err == nil {
		t.Error("a Pod of another controller's pool was handed out")
	}
	checkStillRuns(p, running.GetId())
	p.apply(aloneManifest)
	p.awaitEvent("alone", "LeaseOfAnotherHeld")
	stop()

	// A new worker notices as well, before it has written anything.
	lease(named, "another")
	s.run(t, func(o *Options) {
		naming(o)
		o.pools.adopt = "all"
	})
	planetest.Eventually(t, "refusal", func() error {
		_, err := p.claim("env")
		return wait.If(err != nil && strings.Contains(err.Error(), "MemberInconsistent"), err)
	})
	if now := p.Pool("alone"); len(now.Finalizers) > 0 || len(now.Status.Conditions) > 0 || len(p.pods("alone")) > 0 {
		t.Errorf("written on while another controller keeps it: %+v", now)
	}
	if p.Env("env").ResourceVersion != env || p.Pool("member").ResourceVersion != pool {
		t.Error("Env or pool was written")
	}
	for name, pod := range before {
		if now := p.pods("member")[name]; now.UID != pod.UID {
			t.Errorf("Pod %s is gone", name)
		}
	}
	p.release(running.GetId())

	lease(named, "")
	p.awaitIdle("member", 3)
	p.awaitEnded(running.GetId())
	p.mustClaim("env")
	p.awaitIdle("alone", 2)
	p.awaitEvent("alone", "PoolAdopted")

	// A controller whose lease was not named is noticed by its writes.
	p.kubectl("", "patch", "sandboxpool", "member", "--subresource=status", "--type=merge", "--field-manager=old-controller",
		"-p", `{"status":{"pendingRequests":7}}`)
	p.awaitEvent("member", "StatusWrittenByAnother")
	checkRights(t, s.plane)
}

const envManifest = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: env, namespace: NS}
spec:
  mode: WarmPool
  templateRef: {name: TEMPLATE}
  clusters: [{clusterID: east, members: [{name: member, spec: {replicas: 2}}]}]
`
