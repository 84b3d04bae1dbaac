// SPDX-License-Identifier: Apache-2.0

//go:build kind

package walk_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// written is the Env that a GitOps controller applies.
var written = stack.Env{
	Name: "written", Image: poolImage, Pod: []func(*corev1.PodSpec){stack.ClosedPod},
	Members: []stack.Member{
		{Cluster: "east", Replicas: 1, Resources: "{requests: {cpu: 1m, memory: 8Mi}}"},
		{Cluster: "west", Replicas: 1, Resources: "{requests: {cpu: 1m, memory: 8Mi}}"},
		{Cluster: "south", Replicas: 1, Resources: "{requests: {cpu: 1m, memory: 8Mi}}"},
	},
}

// writeInTheHubsCluster has the hub take its catalogue from objects of its own cluster, which Argo CD applies on the client's side under
// its own name: an Env comes, changes and goes, in the hub's cluster and in the others. What the API's catalogue delivered before stays.
func writeInTheHubsCluster(t *testing.T) {
	upgradeTo(t, hubRelease("logLevel: debug\ncatalog: kubernetes"))
	argo := func(change ...string) {
		t.Helper()
		manifest, err := written.Manifest()
		must.Succeed(t, err)
		must.Succeed(t, stack.Apply(t.Context(), nodes["east"], strings.NewReplacer(change...).Replace(manifest),
			"--field-manager=argocd-controller"))
	}
	argo()
	waitHealthy(t)
	for _, m := range written.Members {
		wait.For(t, patience, m.Cluster+" to serve", func(ctx context.Context) error {
			sandbox, err := hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
				Env: written.Name, Clusters: []string{m.Cluster}, RequireClusters: true,
			})
			if err != nil {
				return err
			}
			return hub.Release(ctx, sandbox.GetId())
		})
	}
	argo("replicas: 1", "replicas: 2")
	waitHealthy(t)
	for _, m := range written.Members {
		wait.For(t, patience, m.Cluster+" to have two members' Pods", func(ctx context.Context) error {
			got, err := nodes[m.Cluster].Kubectl(ctx, "get", "sandboxpool", written.Pool(m.Cluster), "-o", "jsonpath={.spec.replicas}")
			return wait.If(err == nil && got == "2", fmt.Sprint(got, err))
		})
	}
	_, err := nodes["east"].Kubectl(t.Context(), "delete", "sandboxenv", written.Name, "--wait", "--timeout", patience.String())
	must.Succeed(t, err)
	for _, m := range written.Members {
		wait.For(t, patience, "the Env to go from "+m.Cluster, func(ctx context.Context) error {
			got, err := nodes[m.Cluster].Kubectl(ctx, "get", "sandboxenv", written.Name, "--ignore-not-found", "-o", "name")
			return wait.If(err == nil && got == "", fmt.Sprint(got, err))
		})
	}
	serves(t, "west")
}

// waitHealthy waits until Env and template tell that all clusters have them as they stand.
func waitHealthy(t *testing.T) {
	t.Helper()
	for _, object := range []string{"sandboxenv/" + written.Name, "sandboxtemplate/" + written.Name} {
		wait.For(t, patience, object+" to be applied everywhere", func(ctx context.Context) error {
			got, err := nodes["east"].Kubectl(ctx, "get", object, "-o", `jsonpath={.metadata.generation} `+
				`{.status.observedGeneration} {.status.conditions[?(@.type=="Catalogued")].observedGeneration} `+
				`{.status.conditions[?(@.type=="Catalogued")].reason} {.status.conditions[?(@.type=="Stalled")].status}`)
			fields := strings.Fields(got)
			healthy := len(fields) == 4 && fields[0] == fields[1] && fields[0] == fields[2] && fields[3] == "Applied"
			return wait.If(err == nil && healthy, fmt.Sprint(got, err))
		})
	}
}
