// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/envd"
	"navix.sh/atoll/e2e/e2b/wire"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// agent is the Env of E2B's clients: two sandboxes in the cluster that they prefer, and two in another one. Its image knows nothing of the
// daemon, which its Pods get.
var agent = stack.Env{
	Name: "agent", Image: "registry.example/agent", Runtime: "e2b", Port: envd.Port,
	Members: []stack.Member{{Cluster: "east", Replicas: 2}, {Cluster: "west", Replicas: 2, Priority: 10}},
	Pod:     []func(*corev1.PodSpec){sleeps},
}

func sleeps(pod *corev1.PodSpec) { pod.Containers[0].Command = []string{"sleep", "infinity"} }

// e2bKey has the form that E2B's clients check. The demo's hub asks for none.
const e2bKey = "e2b_0000000000000000000000000000000000000000"

// e2b creates sandboxes as E2B's clients do, until the first cluster has no more, and works in the last one.
func (w *world) e2b(ctx context.Context) (detail string, err error) {
	for _, id := range clusters {
		if err := agent.Apply(ctx, w.stack.Cluster(id)); err != nil {
			return "", err
		}
	}
	err = w.waitFor(ctx, "Pods for E2B clients", time.Minute, func(ctx context.Context) error {
		ready, err := w.hub.ReadyIdle(ctx, envNamespace, agent.Name)
		if err != nil {
			return err
		}
		return wait.If(ready["east"] == 2 && ready["west"] == 2, ready)
	})
	if err != nil {
		return "", err
	}
	client := &wire.Client{Origin: w.stack.E2BURL(""), Key: e2bKey}
	var held []*wire.Sandbox
	defer func() {
		for _, s := range held {
			err = errors.Join(err, client.Kill(context.WithoutCancel(ctx), s))
		}
	}()
	for _, cluster := range []string{"east", "east", "west"} {
		s, err := client.Create(ctx, agent.Name, 300)
		if err != nil {
			return "", fmt.Errorf("creating sandbox %d: %w", len(held)+1, err)
		}
		if held = append(held, s); s.Cluster != cluster {
			return "", fmt.Errorf("sandbox %d is in %s, want %s", len(held), s.Cluster, cluster)
		}
	}
	last := held[len(held)-1]
	begin := time.Now()
	out, err := client.Run(ctx, last, `printf 'from the command' > file && echo "$((6 * 7))"`)
	if err != nil || out != "42\n" {
		return "", fmt.Errorf("the command printed %q: %w", out, err)
	}
	took := time.Since(begin)
	if err := client.Write(ctx, last, "script.sh", "cat file\n"); err != nil {
		return "", fmt.Errorf("writing a file: %w", err)
	}
	text, err := client.Read(ctx, last, "file")
	if err != nil || text != "from the command" {
		return "", fmt.Errorf("the file has %q: %w", text, err)
	}
	if out, err = client.Run(ctx, last, "sh script.sh"); err != nil || out != text {
		return "", fmt.Errorf("the script printed %q: %w", out, err)
	}
	return fmt.Sprintf("2 sandboxes in east, and when it ran out 1 in west; there a command ran (%d ms), files were written and read",
		took.Milliseconds()), nil
}

// e2bUsage is what E2B's clients need of the demo.
func e2bUsage(origin string) string {
	return fmt.Sprintf("  export E2B_API_URL=%s E2B_SANDBOX_URL=%s E2B_API_KEY=%s   # for E2B's clients; Sandbox.create('%s')\n",
		origin, origin, e2bKey, agent.Name)
}
