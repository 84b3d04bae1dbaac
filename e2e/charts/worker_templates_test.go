// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"fmt"
	"strings"
	"testing"
)

// podTemplates: what no Pod template can be is refused, in each kind that has one, with the field's name.
func podTemplates(t *testing.T) {
	try := dryRun(t, administrator(t, nil))
	const right = `metadata: {labels: {a: b}, annotations: null}, spec: {terminationGracePeriodSeconds: 1, hostNetwork: false, ` +
		`nodeSelector: {disk: fast},
		volumes: [{name: scratch, emptyDir: {}}], initContainers: [{name: init, image: x}],
		containers: [{name: main, image: x, command: [sh, -c], args: ["1"], tty: true, env: [{name: A, value: "5"}, {name: B, ` +
		`valueFrom: {fieldRef: {fieldPath: metadata.name}}}],
		ports: [{containerPort: 8000}], resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1.5, memory: 2e9}}, ` +
		`securityContext: null}], futureField: {any: thing}}`
	kinds := map[string]string{
		"spec.template.": `{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxTemplate, metadata: {name: told}, spec: {template: {%s}}}`,
		"spec.template..": `{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxPool, metadata: {name: told, namespace: default}, ` +
			`spec: {replicas: 0, template: {%s}}}`,
		"spec.clusters[].members[].spec.template.": `{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxEnv, metadata: {name: told, ` +
			`namespace: default}, spec: {templateRef: {name: told},
			clusters: [{clusterID: west, members: [{name: a}, {name: b, spec: {replicas: 0, template: {%s}}}]}]}}`,
	}
	for path, manifest := range kinds {
		path = strings.TrimRight(path, ".")
		if err := try(fmt.Sprintf(manifest, right)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for _, wrong := range []struct{ old, new, refused string }{
			{"metadata: {", "spec: {}, metadata: 5, x: {", path + ": metadata and spec are objects"},
			{"labels: {a: b}", "labels: {a: 5}", path + ".metadata: labels and annotations"},
			{"labels: {a: b}", "labels: [a]", path + ".metadata: labels and annotations"},
			{"labels: {a: b}", "labels: {agentbox.navix.sh/sandbox-id: b}", "reserved for Atoll; remove them"},
			{"containers: [{name: main", "containers: 5, x: [{name: main", path + ".spec: containers, "},
			{"containers: [{name: main", "containers: [5, {name: main", path + ".spec: containers, "},
			{"volumes: [", "volumes: {}, x: [", path + ".spec: containers, initContainers, ephemeralContainers, volumes"},
			{"nodeSelector: {disk: fast}", "nodeSelector: {disk: true}", path + ".spec: affinity, securityContext"},
			{"Seconds: 1,", `Seconds: "1",`, path + ".spec: terminationGracePeriodSeconds"},
			{"Seconds: 1,", `Seconds: 1.5,`, path + ".spec: terminationGracePeriodSeconds"},
			{"hostNetwork: false", `hostNetwork: "false"`, path + ".spec: automountServiceAccountToken, hostNetwork"},
			{"hostNetwork: false", `restartPolicy: true`, path + ".spec: names and policies"},
			{"image: x", "image: 3.13", path + ".spec.containers[]: name, image"},
			{"command: [sh, -c]", `command: "sh -c"`, path + ".spec.containers[]: command and args"},
			{`args: ["1"]`, "args: [1]", path + ".spec.containers[]: command and args"},
			{"env: [", "env: {A: b}, x: [", path + ".spec.containers[]: env, envFrom"},
			{`value: "5"`, "value: 5", path + ".spec.containers[].env[]: name and value are strings; quote numbers"},
			{"ports: [{containerPort: 8000}]", `ports: [{containerPort: "8000"}]`, path + ".spec.containers[].ports[]: containerPort"},
			{"resources: {", "resources: [], x: {", path + ".spec.containers[]: resources"},
			{"memory: 1Gi", "memory: 1GB", path + ".spec.containers[].resources: limits and requests are quantities"},
			{"memory: 1Gi", "memory: [1]", path + ".spec.containers[].resources: limits and requests are quantities"},
			{"cpu: 1,", "cpu: true,", path + ".spec.containers[].resources: limits and requests are quantities"},
			{"tty: true", "tty: 1", path + ".spec.containers[]: stdin"},
		} {
			text := strings.Replace(right, wrong.old, wrong.new, 1)
			if text == right {
				t.Fatalf("%q is not in the manifest", wrong.old)
			}
			if err := try(fmt.Sprintf(manifest, text)); err == nil || !strings.Contains(err.Error(), wrong.refused) {
				t.Errorf("%s with %s: %v\nmust be refused because of %q", path, wrong.new, err, wrong.refused)
			}
		}
	}
}
