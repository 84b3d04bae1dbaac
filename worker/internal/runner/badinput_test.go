// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/wait"
)

// badInput gives a worker invalid input, and checks that the worker reports it and that other objects are not affected.
// e2e/api tests what the schema refuses.
func badInput(t *testing.T, s *site) {
	bystander := s.place(t)
	bystander.apply(templateManifest + "---" + envManifest)
	bystander.awaitIdle("member", 2)
	for _, tt := range []struct {
		name string
		test func(*place)
	}{
		{"two Envs with a member of one name", testSameMember},
		{"annotations that leave no room for the worker's", testFullAnnotations},
		{"a template that no node can take", testUnschedulable},
		{"a template whose image cannot be pulled", testUnpullable},
		{"a template that is deleted while in use", testTemplateDeleted},
		{"an Env that is deleted with running sandboxes", testEnvDeleted},
		{"more replicas than there is room for", testHugeReplicas},
		{"a pool that names no template and has none", testBarePool},
		{"half a Pod template", testHalfTemplate},
		{"a Pod template that is none", testUnreadable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.test(s.place(t))
			bystander.t = t
			got := bystander.mustClaim("env")
			bystander.release(got.GetId())
			bystander.awaitIdle("member", 2)
		})
	}
}

func testSameMember(p *place) {
	p.apply(templateManifest + "---" + envManifest)
	p.awaitIdle("member", 2)
	p.apply(strings.Replace(envManifest, "name: env", "name: second", 1))
	message := p.awaitCondition("env", "second", v1alpha1.SandboxEnvConditionReady, metav1.ConditionFalse, v1alpha1.ReasonMembersInconsistent)
	if !strings.Contains(message, "SandboxEnv env") {
		p.t.Errorf("the second Env tells %q", message)
	}
	p.awaitCondition("env", "env", v1alpha1.SandboxEnvConditionReady, metav1.ConditionTrue, v1alpha1.ReasonMembersReady)
	if _, err := p.claim("second"); err == nil {
		p.t.Error("the second Env hands out the first one's Pods")
	}
	if out, err := p.tryKubectl(strings.Replace(envManifest, "members: [", "members: [{name: member}, ", 1), "apply", "--server-side", "-f",
		"-"); err == nil {
		p.t.Errorf("a member twice in one Env was accepted: %s", out)
	}
}

// testFullAnnotations: an object may have 256 KiB of them. The pool of a member with as many would have more, and is not tried.
func testFullAnnotations(p *place) {
	p.apply(templateManifest)
	full := strings.Repeat("x", 256<<10-20)
	// Sent as it is: client-side apply would keep a second copy in an annotation.
	p.kubectl(strings.NewReplacer(
		"name: env,", "name: full,", "name: member,", `name: full, config: {annotations: {a: "`+full+`"}},`).Replace(envManifest), "create", "-f",
		"-")
	planetest.Eventually(p.t, "the refusal in the Env's condition", func() error {
		message := p.awaitCondition("env", "full", v1alpha1.SandboxEnvConditionReady, metav1.ConditionFalse, v1alpha1.ReasonMembersInvalid)
		return wait.If(strings.Contains(message, "config.annotations: with those of SandboxTemplate") && len(message) <= 1<<10, message)
	})
	out, err := p.tryKubectl(strings.Replace(envManifest, "namespace: NS", `namespace: NS, annotations: {a: "`+strings.Repeat("x", 5<<20)+`"}`,
		1), "create", "-f", "-")
	if err == nil {
		p.t.Errorf("5 MB of annotations were accepted: %.300s", out)
	}
}

func testUnschedulable(p *place) {
	p.apply(strings.Replace(templateManifest, "automountServiceAccountToken: false",
		"automountServiceAccountToken: false, nodeSelector: {no: such}", 1) + "---" + envManifest)
	p.checkDegraded("not ready: 2")
	p.kubectl("", "delete", "sandboxenv", "env")
	p.awaitGone(&v1alpha1.SandboxPool{}, "member")
}

func testUnpullable(p *place) {
	p.apply(strings.Replace(templateManifest, "test.local/idle:1", "test.local/fail-pull:1", 1) + "---" + envManifest)
	p.checkDegraded("ImagePullBackOff: 2")
	p.awaitEvent("member", "PodsNotReady")
	p.kubectl("", "delete", "sandboxenv", "env")
	p.awaitGone(&v1alpha1.SandboxPool{}, "member")
}

// checkDegraded: Pods that cannot serve are counted, shown, left in place, and not handed out.
func (p *place) checkDegraded(message string) {
	p.t.Helper()
	planetest.Eventually(p.t, "two unavailable Pods", func() error {
		pool := &v1alpha1.SandboxPool{}
		if err := p.live.Get(p.ctx, p.Key("member"), pool); err != nil {
			return err
		}
		s := pool.Status
		return wait.If(s.UnavailableIdleReplicas == 2 && s.Phase == v1alpha1.SandboxPoolPhaseDegraded, s)
	})
	before := p.pods("member")
	planetest.Eventually(p.t, "what is wrong in the condition", func() error {
		got := p.awaitCondition("pool", "member", v1alpha1.SandboxPoolConditionDegraded, metav1.ConditionTrue,
			v1alpha1.SandboxPoolReasonUnhealthyIdlePods)
		return wait.If(strings.Contains(got, message), got)
	})
	p.awaitCondition("pool", "member", v1alpha1.SandboxPoolConditionAvailable, metav1.ConditionFalse,
		v1alpha1.SandboxPoolReasonNoIdlePodsAvailable)
	if got, err := p.claim("env"); err == nil || !strings.Contains(err.Error(), "no eligible pool") {
		p.t.Errorf("a claim is answered %v, %v", got, err)
	}
	for name := range before {
		if pod := before[name]; p.pods("member")[name].UID != pod.UID {
			p.t.Errorf("Pod %s was replaced by one that fares no better", name)
		}
	}
}

func testTemplateDeleted(p *place) {
	p.apply(templateManifest + "---" + envManifest)
	p.awaitIdle("member", 2)
	running := p.mustClaim("env")
	p.awaitIdle("member", 1)
	before, spec := p.pods("member"), p.Pool("member").Spec
	p.kubectl("", "delete", "sandboxtemplate", "TEMPLATE")
	p.awaitCondition("env", "env", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateNotFound)
	p.sameAsBefore("member", before, &spec)
	checkStillRuns(p, running.GetId())
	p.release(running.GetId())
	p.awaitEnded(running.GetId())
	p.awaitIdle("member", 2) // refilled from the snapshot
	p.apply(templateManifest)
	p.awaitCondition("env", "env", v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionTrue, v1alpha1.ReasonTemplateMatches)
}

func testEnvDeleted(p *place) {
	p.apply(templateManifest + "---" + envManifest)
	p.awaitIdle("member", 2)
	released := p.mustClaim("env")
	var completes *sandboxv1.Sandbox
	planetest.Eventually(p.t, "a second sandbox", func() (err error) {
		completes, err = p.sandboxes.CreateSandbox(p.ctx, &sandboxv1.CreateSandboxRequest{Namespace: p.Namespace, Env: "env", Team: "team"})
		return err
	})
	p.kubectl("", "delete", "sandboxenv", "env", "--wait=false")
	p.awaitGone(&v1alpha1.SandboxEnv{}, "env")
	p.awaitCondition("pool", "member", v1alpha1.SandboxPoolConditionAvailable, metav1.ConditionFalse,
		v1alpha1.SandboxPoolReasonNoIdlePodsAvailable)
	checkStillRuns(p, released.GetId())
	checkStillRuns(p, completes.GetId())
	if _, err := p.claim("env"); err == nil {
		p.t.Error("an Env that is gone hands out Pods")
	}
	p.release(released.GetId())
	if got := p.awaitEnded(released.GetId()); got.GetStopReason() != string(v1alpha1.SandboxStopReasonReleased) {
		p.t.Errorf("ended as %v", got)
	}
	// The other pool's Pod is deleted: its record is still written, and then the pool is gone.
	p.kubectl("", "delete", "pod", completes.GetPod(), "--wait=false")
	if got := p.awaitEnded(completes.GetId()); got.GetStopReason() == "" {
		p.t.Errorf("ended as %v", got)
	}
	p.awaitGone(&v1alpha1.SandboxPool{}, "member")
}

func testHugeReplicas(p *place) {
	p.limitPods(3)
	p.apply(templateManifest + "---" + strings.Replace(aloneManifest, "replicas: 2", "replicas: 2147483647", 1))
	p.awaitIdle("alone", 3)
	got := p.mustClaim("alone")
	p.release(got.GetId())
	p.kubectl("", "patch", "sandboxpool", "alone", "--type=merge", "-p", `{"spec":{"replicas":1}}`)
	p.awaitIdle("alone", 1)
}

func testBarePool(p *place) {
	p.kubectl(`
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxPool
metadata: {name: bare, namespace: NS}
spec: {replicas: 2}
`, "apply", "-f", "-")
	p.awaitCondition("pool", "bare", v1alpha1.SandboxPoolConditionTemplateConsistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateInvalid)
	if len(p.pods("bare")) > 0 {
		p.t.Error("it has Pods")
	}
	p.kubectl("", "patch", "sandboxpool", "bare", "--type=merge", "-p",
		`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"test.local/a:1"}]}}}}`)
	p.awaitIdle("bare", 2)
	p.kubectl("", "delete", "sandboxpool", "bare")
}

func testHalfTemplate(p *place) {
	p.apply(templateManifest + "---" + strings.Replace(aloneManifest, "replicas: 2,", "replicas: 2, template: {metadata: {labels: {a: b}}},",
		1))
	message := p.awaitCondition("pool", "alone", v1alpha1.SandboxPoolConditionTemplateConsistent, metav1.ConditionFalse,
		v1alpha1.ReasonTemplateInvalid)
	if !strings.Contains(message, "would be lost") || len(p.pods("alone")) > 0 {
		p.t.Errorf("the pool tells %q", message)
	}
	p.kubectl("", "patch", "sandboxpool", "alone", "--type=json", "-p", `[{"op":"remove","path":"/spec/template"}]`)
	p.awaitIdle("alone", 2)
	p.kubectl("", "delete", "sandboxpool", "alone")
}

// testUnreadable: the chart's policy refuses what no informer could decode, in all three kinds. A template that got past it, in a
// cluster without the policy, is reported as invalid and does no harm.
func testUnreadable(p *place) {
	p.apply(strings.Replace(templateManifest, "image: \"test.local/python:3\"", "image: i, resources: {limits: {cpu: lots}}", 1))
	message := p.awaitCondition("template", "TEMPLATE", "Available", metav1.ConditionFalse, v1alpha1.ReasonTemplateInvalid)
	if !strings.Contains(message, "no Pod template") {
		p.t.Errorf("the template tells %q", message)
	}
	p.apply(envManifest + "---" + aloneManifest)
	p.awaitCondition("env", "env", v1alpha1.SandboxEnvConditionReady, metav1.ConditionFalse, v1alpha1.ReasonMembersInvalid)
	p.awaitCondition("pool", "alone", v1alpha1.SandboxPoolConditionTemplateConsistent, metav1.ConditionFalse, v1alpha1.ReasonTemplateInvalid)

	policy, err := os.ReadFile(filepath.Join("..", "..", "..", "charts", "worker", "files", "policies", "pod-templates.yaml"))
	p.Must(err)
	p.kubectl(string(policy), "apply", "-f", "-")
	unreadable := strings.Replace(aloneManifest, "name: alone", "name: unreadable", 1)
	unreadable = strings.Replace(unreadable, "replicas: 2,",
		"replicas: 2, template: {spec: {containers: [{name: a, image: i, resources: {limits: {cpu: lots}}}]}},", 1)
	planetest.Eventually(p.t, "the policy's refusal", func() error {
		out, err := p.tryKubectl(unreadable, "create", "--dry-run=server", "-f", "-")
		return wait.If(err != nil && strings.Contains(err.Error()+out, "quantities"), fmt.Sprintf("%s, %v", out, err))
	})
	p.apply(templateManifest)
	p.awaitIdle("alone", 2)
	p.awaitIdle("member", 2)
}
