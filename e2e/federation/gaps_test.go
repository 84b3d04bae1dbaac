// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// federated waits until a cluster's object has that condition Federated: its reason and message.
func (e *env) federated(ctx context.Context, t *testing.T, cluster, want string) {
	t.Helper()
	wait.For(t, patience, "Federated of "+e.Name+" in "+cluster+" to be "+want, func(ctx context.Context) error {
		got, err := e.get(ctx, cluster)
		if err != nil {
			return err
		}
		f := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.SandboxEnvConditionFederated)
		if f == nil {
			return fmt.Errorf("there is none among %v", got.Status.Conditions)
		}
		return wait.If(f.Reason+": "+f.Message == want, f)
	})
}

// The object, the hub, atollctl and doctor tell which clusters an Env has members of and that do not serve it, until they do.
func TestAnEnvSaysWhichClustersDoNotServeIt(t *testing.T) {
	ctx := testContext(t)
	e := declareEnv(t, "gaps", []member{{Cluster: "east", Replicas: 1}, {Cluster: "west", Replicas: 1}, {Cluster: "mars", Replicas: 1}})
	lacks := func(missing, without string) {
		t.Helper()
		wait.For(t, patience, "the hub to miss "+missing+", and the Env in "+without, func(ctx context.Context) error {
			got, err := e.merged(ctx)
			missed, lacking := strings.Join(got.GetMissingClusters(), ","), strings.Join(got.GetClustersWithoutEnv(), ",")
			return errors.Join(err, wait.If(missed == missing && lacking == without, got))
		})
	}
	e.apply(ctx, t, "east")
	e.waitReady(ctx, t, map[string]int{"east": 1})
	lacks("mars", "west")
	e.federated(ctx, t, "east", "ClusterMissing: mars is not registered at the hub; west has no such Env")
	if text := atollctl(ctx, t, "envs"); !strings.Contains(text, "mars is not registered; west has no such Env") {
		t.Errorf("atollctl envs prints\n%s", text)
	}
	diagnosed := func() []string {
		t.Helper()
		out, _ := look(ctx, t, "doctor")
		var about []string
		for line := range strings.Lines(out) {
			if strings.Contains(line, "env "+namespace+"/"+e.Name+": ") && strings.Contains(line, "(EnvNotFederated)") {
				about = append(about, strings.TrimSpace(line))
			}
		}
		return about
	}
	want := []string{
		"warning   env default/gaps: has members of cluster mars, which is not registered (EnvNotFederated)",
		"warning   env default/gaps: has members of cluster west, which has no such Env (EnvNotFederated)",
	}
	if got := diagnosed(); !slices.Equal(got, want) {
		t.Errorf("doctor says %q, want %q", got, want)
	}

	e.apply(ctx, t, "west")
	e.waitReady(ctx, t, map[string]int{"east": 1, "west": 1})
	lacks("mars", "")
	for _, cluster := range []string{"east", "west"} {
		e.federated(ctx, t, cluster, "ClusterMissing: mars is not registered at the hub")
	}
	must.Succeed(t, restart(ctx, atoll.Hub))
	must.Succeed(t, heal(ctx))
	e.federated(ctx, t, "east", "ClusterMissing: mars is not registered at the hub")
	lacks("mars", "")

	e.Members = e.Members[:2]
	e.apply(ctx, t, "east", "west")
	lacks("", "")
	e.federated(ctx, t, "east", "InSync: other clusters: west")
	e.federated(ctx, t, "west", "InSync: other clusters: east")
	mustVerify(ctx, t)
}

// Another cluster's segment stays in spec as it was applied, and status and condition say what its owner has.
func TestI3_TheOwnersSpecIsShown(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "owners", equally(1)...)
	e.federated(ctx, t, "east", "InSync: other clusters: north, west")
	e.Members[2].Replicas = 3
	e.apply(ctx, t, "west")
	e.waitSegment(ctx, t, "east", "west", "idle=3 running=0 desired=3")
	e.federated(ctx, t, "east", "InSync: other clusters: north, west; "+
		"spec.clusters here is not what counts: west/owners-west has 3 replicas, not 1")
	e.apply(ctx, t, "east")
	e.federated(ctx, t, "east", "InSync: other clusters: north, west")
}

// What only a person can cure is told at once, with its cause: by the response, explain and atollctl's exit code.
func TestWhatAPersonMustCureIsTold(t *testing.T) {
	ctx := testContext(t)
	for _, c := range []struct{ name, was, is, cause string }{
		{"no-template", "templateRef: {name: no-template}", "templateRef: {name: nowhere}",
			`TemplateNotFound: no-template-east: there is no SandboxTemplate "nowhere"`},
		{"on-demand", "mode: WarmPool", "mode: OnDemandJob", "ModeNotSupported: "},
		{"no-type", "inlineResources: {requests: {cpu: 10m, memory: 16Mi}}", "instanceType: nowhere, multiplier: 1",
			"MembersInvalid: no-type-east: "},
	} {
		e := declareEnv(t, c.name, []member{{Cluster: "east", Replicas: 1}})
		valid, err := e.Manifest()
		must.Succeed(t, err)
		manifest := strings.Replace(valid, c.was, c.is, 1)
		if manifest == valid {
			t.Fatalf("%s: the manifest has no %q", c.name, c.was)
		}
		must.Succeed(t, stack.Apply(ctx, atoll.Cluster("east"), manifest))
		wait.For(t, patience, "the hub to know why "+c.name+" serves no claim", func(ctx context.Context) error {
			got, err := e.merged(ctx)
			return errors.Join(err, wait.If(len(got.GetClusters()) == 1 && strings.HasPrefix(got.GetClusters()[0].GetFault(), c.cause), got))
		})
		refused := call(ctx, t, 422, "POST", "/v1/sandboxes", fmt.Sprintf(`{"env": %q, "startupTimeout": "30s"}`, e.Name))
		if refused.Reason != "MISCONFIGURED" || !strings.Contains(refused.Detail, c.cause) || refused.header.Get("Retry-After") != "" {
			t.Errorf("%s: a claim is told %s, retry after %q", c.name, refused.text, refused.header.Get("Retry-After"))
		}
		explained := call(ctx, t, 200, "POST", "/v1/envs/"+namespace+"/"+e.Name+":explain", "{}")
		if !strings.Contains(explained.text, "only a person can cure it") ||
			!strings.Contains(explained.text, strings.SplitN(c.cause, ":", 2)[0]) {
			t.Errorf("%s: explained as %s", c.name, explained.text)
		}
		if out, code := exits(ctx, t, "create", "--env", e.Name); code != 8 || !strings.Contains(out, c.cause) {
			t.Errorf("%s: atollctl exits with %d: %s", c.name, code, out)
		}
	}
}
