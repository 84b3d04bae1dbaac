// SPDX-License-Identifier: Apache-2.0

package allotments_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// account is the hub's in its own cluster, with the rules of its chart (templates/catalog.yaml).
const account = `apiVersion: v1
kind: ServiceAccount
metadata: {name: atoll-hub-catalog, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: atoll-hub-catalog}
rules:
- {apiGroups: [agents.navix.sh], resources: [sandboxenvs, sandboxtemplates], verbs: [get, list, watch, patch]}
- {apiGroups: [agents.navix.sh], resources: [sandboxenvs/status, sandboxtemplates/status], verbs: [patch]}
- {apiGroups: [""], resources: [namespaces], resourceNames: [kube-system], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: atoll-hub-catalog}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: atoll-hub-catalog}
subjects: [{kind: ServiceAccount, name: atoll-hub-catalog, namespace: default}]
`

// written is what a GitOps controller applies in the hub's cluster, with the stages of its rollout.
func written(image, stages string) string {
	return templateOf("written") + fmt.Sprintf(`apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: written, namespace: default, annotations: {agentbox.navix.sh/rollout: "%s"}}
spec:
  mode: WarmPool
  templateRef: {name: written}
  overrides: {image: %s}
  clusters:
  - clusterID: east
    members: [{name: written-east, spec: {replicas: 1}, config: {inlineResources: {requests: {cpu: 10m}}}}]
  - clusterID: north
    members: [{name: written-north, spec: {replicas: 1}, config: {inlineResources: {requests: {cpu: 10m}}}}]
`, stages, image)
}

// ownFirst is a rollout that the hub's own cluster begins, which has a change as soon as it is written.
const ownFirst = "stages: [[east], [north]]"

// apply applies what is written on the server's side, as Flux does.
func apply(t *testing.T, image, stages string) {
	t.Helper()
	must.Succeed(t, stack.Apply(t.Context(), atoll.Cluster("east"), written(image, stages), "--server-side",
		"--field-manager=kustomize-controller"))
}

// written objects of a cluster; nil: it is not there.
func writtenIn(ctx context.Context, cluster string) (*v1alpha1.SandboxEnv, error) {
	env := &v1alpha1.SandboxEnv{}
	err := kube[cluster].Get(ctx, client.ObjectKey{Namespace: "default", Name: "written"}, env)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return env, err
}

// kstatus tells of an object what Flux reads from it: whether it is current, and if not, why.
func kstatus(generation, observed int64, conditions []metav1.Condition) string {
	why := func(kind string) string {
		c := meta.FindStatusCondition(conditions, kind)
		if c == nil {
			return ""
		}
		if c.ObservedGeneration != generation {
			return kind + " of another generation"
		}
		return string(c.Status) + "/" + c.Reason + ": " + c.Message
	}
	switch stalled, reconciling, ready := why("Stalled"), why("Reconciling"), meta.FindStatusCondition(conditions, "Ready"); {
	case observed != generation:
		return "InProgress: of another generation"
	case strings.HasPrefix(stalled, "True"):
		return "Failed: " + stalled
	case strings.HasPrefix(reconciling, "True"):
		return "InProgress: " + reconciling
	case ready != nil && ready.Status != metav1.ConditionTrue:
		return "InProgress: not ready: " + ready.Message
	}
	return "Current: " + why(v1alpha1.SandboxEnvConditionCatalogued)
}

// waitWritten waits for what Flux says of the Env in the hub's cluster, and for its image in the other one.
func waitWritten(t *testing.T, says, image string) {
	t.Helper()
	wait.For(t, patience, fmt.Sprintf("%q in the hub's cluster and %s in north", says, image), func(ctx context.Context) error {
		own, err := writtenIn(ctx, "east")
		if err != nil || own == nil {
			return fmt.Errorf("the hub's cluster has no Env: %w", err)
		}
		other, err := writtenIn(ctx, "north")
		if err != nil || other == nil {
			return fmt.Errorf("north has no Env: %w; east says %v", err, own.Status.Conditions)
		}
		got := kstatus(own.Generation, own.Status.ObservedGeneration, own.Status.Conditions)
		return wait.If(strings.HasPrefix(got, says) && other.Spec.Overrides.Image == image, fmt.Sprint(got, other.Spec.Overrides))
	})
}

// I3: what is applied in the hub's own cluster, under its chart's rules and the workers' policies, reaches the other cluster. The status
// tells what kstatus reads, and a deletion waits until the hub has noted it.
func TestI3_CatalogueOfTheHubsCluster(t *testing.T) {
	for _, id := range clusters {
		_, err := atoll.Cluster(id).Kubectl(t.Context(), "delete", "sandboxenv", "-n", "default", "--all", "--wait")
		must.Succeed(t, err)
	}
	must.Succeed(t, stack.Apply(t.Context(), atoll.Cluster("east"), account))
	kubeconfig, err := set.Plane("east").ServiceAccountKubeconfig(t.Context(), "default", "atoll-hub-catalog")
	must.Succeed(t, err)
	must.Succeed(t, atoll.Hub.Stop())
	must.Succeed(t, atoll.SetHubArgs("--allotments", "--catalog=kubernetes", "--catalog-kubeconfig="+kubeconfig))
	must.Succeed(t, atoll.Hub.Start(t.Context()))

	apply(t, "registry.example/python:1", ownFirst)
	waitWritten(t, "Current: True/Applied", "registry.example/python:1")
	template := &v1alpha1.SandboxTemplate{}
	must.Succeed(t, kube["east"].Get(t.Context(), client.ObjectKey{Name: "written"}, template))
	got := kstatus(template.Generation, template.Status.ObservedGeneration, template.Status.Conditions)
	if !strings.HasPrefix(got, "Current: True/Applied") {
		t.Errorf("of the template Flux says %s", got)
	}
	for _, id := range clusters {
		wait.For(t, patience, "a claim in "+id, func(ctx context.Context) error {
			s, err := hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: "written", Clusters: []string{id}, RequireClusters: true})
			if err != nil {
				return err
			}
			return hub.Release(ctx, s.GetId())
		})
	}

	apply(t, "registry.example/python:2", ownFirst)
	waitWritten(t, "Current: True/Applied", "registry.example/python:2")
	apply(t, "registry.example/python:3", "stages: [[north], [east]]")
	waitWritten(t, "Failed: True/Refused", "registry.example/python:2")
	apply(t, "registry.example/python:4", ownFirst)
	waitWritten(t, "Current: True/Applied", "registry.example/python:4")

	must.Succeed(t, atoll.Worker("north").Stop())
	_, err = atoll.Cluster("east").Kubectl(t.Context(), "delete", "sandboxenv", "-n", "default", "written", "--wait", "--timeout=60s")
	must.Succeed(t, err)
	if env, err := writtenIn(t.Context(), "north"); err != nil || env == nil {
		t.Errorf("while north is away it has the Env %v, %v", env, err)
	}
	must.Succeed(t, atoll.Worker("north").Start(t.Context()))
	wait.For(t, patience, "the Env to go from north", func(ctx context.Context) error {
		env, err := writtenIn(ctx, "north")
		return wait.If(err == nil && env == nil, fmt.Sprint(env, err))
	})
	_, err = atoll.Cluster("east").Kubectl(t.Context(), "delete", "sandboxtemplate", "written", "--wait", "--timeout=60s")
	must.Succeed(t, err)
	wait.For(t, patience, "the template to go from north", func(ctx context.Context) error {
		err := kube["north"].Get(ctx, client.ObjectKey{Name: "written"}, &v1alpha1.SandboxTemplate{})
		return wait.If(apierrors.IsNotFound(err), fmt.Sprint(err))
	})
}
