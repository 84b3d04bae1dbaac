// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/instances"
	"navix.sh/atoll/worker/internal/podtemplate"
	"navix.sh/atoll/worker/internal/snapshot"
)

func TestBeingAdopted(t *testing.T) {
	owner := []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.SandboxEnvOwnerKind, Name: "e", UID: "env"}}
	for name, tc := range map[string]struct {
		madeFor string
		owners  []metav1.OwnerReference
		want    bool
	}{
		"made for it":            {"pool", nil, true},
		"made for it, and known": {"pool", owner, false},
		"made for another":       {"other", nil, false},
		"made for none":          {"", nil, false},
	} {
		env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AdoptedPoolAnnotationKey: tc.madeFor}}}
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{UID: "pool", OwnerReferences: tc.owners}}
		if got := beingAdopted(&observation{Source: snapshot.Source{Env: env}}, pool); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestDecide reads observations from testdata/decide and compares the decisions with the text there. An input is a list of
// manifests: the Env, its template, the instance types, the Env's pull secret, and existing pools, at testTime. A pool's document
// may be shortened to "snapshotOf: <member>", which is the pool of the Env's snapshot of that member. "let" names a text for use
// as $name; it starts with a comment where its indentation counts.
func TestDecide(t *testing.T) {
	datadriven.Walk(t, "testdata/decide", func(t *testing.T, path string) {
		base := map[string]string{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "let":
				base["$"+d.CmdArgs[0].Key] = d.Input
				return ""
			case "observe", "refresh":
				input := d.Input
				for name, manifest := range base {
					input = strings.ReplaceAll(input, name, manifest)
				}
				o, err := parseObservation(input)
				if err != nil {
					return "error: " + err.Error()
				}
				if d.Cmd == "refresh" {
					return describeRefresh(d, o)
				}
				o.allotted = d.HasArg("allotted") // the hub divides maxReplicas
				p := decide(o)
				return describePlan(&p) + describeReport(o, &p)
			default:
				t.Fatalf("no such command: %s", d.Cmd)
				return ""
			}
		})
	})
}

// describeRefresh parses the request from the command's arguments, as in "refresh members=(a,b) rollout=3".
func describeRefresh(d *datadriven.TestData, o *observation) string {
	request := refreshRequest{}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "members":
			request.members = arg.Vals
		case "rollout":
			request.rollout = arg.Vals[0]
		}
	}
	p, err := decideRefresh(o, request)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var b strings.Builder
	b.WriteString(describePlan(p))
	for i := range p.members {
		if message := p.members[i].message; message != "" {
			fmt.Fprintf(&b, "%s: %s\n", p.members[i].name, message)
		}
	}
	return b.String()
}

// TestDecideIntended: a difference is the Env's change only if the Env asks for something else than when the two matched.
func TestDecideIntended(t *testing.T) {
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	member := &v1alpha1.EnvClusterMember{Name: "m"}
	points := []snapshot.Drift{{What: snapshot.Replicas}}
	for name, tc := range map[string]struct {
		change func()
		want   bool
	}{
		"as when the two matched":  {func() {}, false},
		"the Env has changed":      {func() { env.Generation++ }, true},
		"the snapshot has changed": {func() { member.Spec.Replicas++ }, true},
	} {
		o := &observation{Source: snapshot.Source{Env: env}, matched: map[string]asked{"m": askedOf(env, member)}}
		tc.change()
		if got := intended(o, member, &v1alpha1.SandboxPool{}, points); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// templateOf is a template of one container.
func templateOf(t *testing.T, container map[string]any) *podtemplate.Template {
	t.Helper()
	obj := podtemplate.Object()
	obj.SetName("base")
	obj.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{container}}}}
	tmpl, err := podtemplate.Read(obj)
	must.Succeed(t, err)
	return tmpl
}

var testTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func parseObservation(input string) (*observation, error) {
	o := &observation{
		clusterID: "east", now: testTime, since: testTime.Sub,
		pools: map[string]*v1alpha1.SandboxPool{}, explicitReplicas: map[string]int32{},
	}
	var doc envDoc
	for _, manifest := range strings.Split(input, "\n---\n") {
		content, err := yaml.YAMLToJSON([]byte(manifest))
		if err != nil {
			return nil, err
		}
		obj := &unstructured.Unstructured{}
		if err := json.Unmarshal(content, &obj.Object); err != nil {
			return nil, err
		}
		if obj.Object == nil {
			continue
		}
		switch obj.GetKind() {
		case "SandboxEnv":
			o.Env = &v1alpha1.SandboxEnv{}
			doc = envDoc{Unstructured: obj, clusterID: o.clusterID}
			err = yaml.UnmarshalStrict(content, o.Env)
		case "SandboxTemplate":
			o.Template, err = podtemplate.Read(obj)
		case "ConfigMap":
			data, _, _ := unstructured.NestedStringMap(obj.Object, "data")
			o.Types = instances.Parse(data)
		case "Secret":
			o.PullSecret = obj.GetName() == v1alpha1.EnvImagePullSecretName(o.Env.Name)
		default:
			err = o.parsePool(obj, content)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, member := range o.members() {
		if !snapshot.Has(member) {
			if replicas, ok := doc.member(member.Name).replicas(); ok {
				o.explicitReplicas[member.Name] = replicas
			}
		}
	}
	return o, nil
}

func (o *observation) parsePool(obj *unstructured.Unstructured, content []byte) error {
	pool := &v1alpha1.SandboxPool{}
	if name, ok := obj.Object["snapshotOf"].(string); ok {
		for _, member := range o.members() {
			if member.Name == name {
				made, err := json.Marshal(snapshot.NewPool(o.Env, member, map[string]any{}))
				if err != nil {
					return err
				}
				if err := json.Unmarshal(made, pool); err != nil {
					return err
				}
				pool.Spec = *member.Spec.DeepCopy()
			}
		}
		delete(obj.Object, "snapshotOf")
		over, err := json.Marshal(obj.Object)
		if err != nil {
			return err
		}
		content = over
	}
	if err := json.Unmarshal(content, pool); err != nil {
		return err
	}
	if pool.Spec.PodCreationImagePolicy == "" { // the schema's default
		pool.Spec.PodCreationImagePolicy = v1alpha1.PodCreationImagePolicyIdleImage
	}
	o.pools[pool.Name] = pool
	return nil
}

func describePlan(p *plan) string {
	var b strings.Builder
	for i := range p.members {
		m := &p.members[i]
		fmt.Fprintf(&b, "%s: %s", m.name, m.verb)
		if m.reason != "" {
			fmt.Fprintf(&b, " (%s)", m.reason)
		}
		fmt.Fprintf(&b, ", %s", m.state)
		switch m.verb {
		case verbAdmit, verbTakeBack, verbRestoreReplicas:
			fmt.Fprintf(&b, ", %d replicas", m.replicas)
		}
		b.WriteString("\n")
		for _, point := range m.drift {
			fmt.Fprintf(&b, "  drift: %s\n", point)
		}
		if m.snapshot != nil {
			fmt.Fprintf(&b, "  labels %s\n  annotations %s\n  spec %s\n",
				toJSON(m.snapshot.Labels), toJSON(m.snapshot.Annotations), toJSON(m.snapshot.Spec))
		}
	}
	for _, name := range p.orphans {
		fmt.Fprintf(&b, "%s: %s\n", name, verbDelete)
	}
	return b.String()
}

func describeReport(o *observation, p *plan) string {
	clk := testclock.NewFakePassiveClock(testTime)
	r := compute(o, p, clk)
	var b strings.Builder
	for _, m := range r.segment.ObservedMembers {
		fmt.Fprintf(&b, "status %s\n", toJSON(m))
	}
	fmt.Fprintf(&b, "totals %d members, %d desired, %d running, %d idle\n", r.members, r.desired, r.run, r.unused)
	for _, g := range r.groups {
		fmt.Fprintf(&b, "group %s: %d desired, %d running, %d idle\n", g.Name, g.TotalDesired, g.TotalRunning, g.TotalIdle)
	}
	for _, c := range r.conditions {
		fmt.Fprintf(&b, "%s=%s/%s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	return b.String()
}

func TestAutoscalingActive(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*observation)
		status metav1.ConditionStatus
		reason v1alpha1.ConditionReason
	}{
		"running":       {func(*observation) {}, metav1.ConditionTrue, v1alpha1.ReasonAutoscalerRunning},
		"no autoscaler": {func(o *observation) { o.autoscaler = false }, metav1.ConditionFalse, v1alpha1.ReasonAutoscalerNotRunning},
		"no groups":     {func(o *observation) { o.Env.Spec.Autoscaling = nil }, metav1.ConditionFalse, v1alpha1.ReasonAutoscalingNotConfigured},
		"none enabled": {func(o *observation) { o.Env.Spec.Autoscaling.Groups[0].Enabled = false }, metav1.ConditionFalse,
			v1alpha1.ReasonAutoscalingDisabled},
		"contested": {func(o *observation) { o.contested = map[string]bool{"a": true} }, metav1.ConditionFalse,
			v1alpha1.ReasonReplicasContested},
		"misconfigured": {misconfigure, metav1.ConditionFalse, v1alpha1.ReasonAutoscalingMisconfigured},
		"wrong, but off": {func(o *observation) { misconfigure(o); o.Env.Spec.Autoscaling.Groups[0].Enabled = false }, metav1.ConditionFalse,
			v1alpha1.ReasonAutoscalingDisabled},
	} {
		o, err := parseObservation(`kind: SandboxEnv
metadata: {name: e, namespace: ns, uid: env}
spec:
  autoscaling: {groups: [{name: default, enabled: true}]}
  clusters: [{clusterID: east, members: [{name: a, config: {scalingGroup: default}, spec: {replicas: 5}}]}]`)
		must.Succeed(t, err)
		o.autoscaler = true
		c.change(o)
		if got := autoscalingActiveOf(o); got.Status != c.status || got.Reason != c.reason || got.Message == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func misconfigure(o *observation) {
	o.Env.Spec.Autoscaling.Groups[0].ScaleUpPolicy.Mode = v1alpha1.PoolScaleUpModeAggressive
}

// An Env that is applied anew right after it was deleted waits for its predecessor's pool, also before Kubernetes has begun to delete that.
func TestPoolOfAPredecessorIsWaitedFor(t *testing.T) {
	o := &observation{}
	o.Env = &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Name: "e", UID: "new"}}
	for name, want := range map[string]verb{"e": verbWait, "other": verbRefuse} {
		yes := true
		owner := metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.SandboxEnvOwnerKind, Name: name, UID: "old",
			Controller: &yes}
		pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: "a", OwnerReferences: []metav1.OwnerReference{owner}}}
		got := decideNotOwned(o, memberPlan{name: "a"}, pool)
		if got.verb != want || strings.Contains(got.message, "still ending") != (want == verbWait) {
			t.Errorf("of Env %s: %s, %q", name, got.verb, got.message)
		}
	}
}
