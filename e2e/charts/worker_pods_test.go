// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"fmt"
	"strings"
	"testing"
)

func pod(name, metadata string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: default%s},
	spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: "registry.example/python:3.13"}]}}`, name, metadata)
}

const (
	idleKeys = `, labels: {agentbox.navix.sh/managed-by: sandbox-api-server, agentbox.navix.sh/sandbox-pool: told, ` +
		`agentbox.navix.sh/sandbox-phase: idle},
	annotations: {agentbox.navix.sh/template-revision: r1}, finalizers: [agentbox.navix.sh/sandbox-protection]`
	claim = `{"metadata":{
	"labels":{"agentbox.navix.sh/sandbox-phase":"running","agentbox.navix.sh/sandbox-id":"s1-east","scheduling.navix.sh/team":"hash",` +
		`"tier":"gold"},
	"annotations":{"agentbox.navix.sh/sandbox-id":"s1-east","agentbox.navix.sh/claim-key":"k","scheduling.navix.sh/team":"search",
		"agentbox.navix.sh/managed-label-keys":"tier","agentbox.navix.sh/sandbox-metadata":"{}"}}}`
	release = `{"metadata":{
	"labels":{"agentbox.navix.sh/sandbox-phase":"idle","agentbox.navix.sh/sandbox-id":null,"scheduling.navix.sh/team":null,"tier":null},
	"annotations":{"agentbox.navix.sh/sandbox-id":"","agentbox.navix.sh/claim-key":"","scheduling.navix.sh/team":"",` +
		`"agentbox.navix.sh/managed-label-keys":""}}}`
	onlyWorker = ": written by atoll-worker alone"
)

// sandboxes are the worker's: what a Pod of Atoll says of itself, idle or claimed, through every resource that takes labels.
func sandboxes(t *testing.T) {
	const (
		patch  = "patch pod told --type=merge -p {}"
		status = "patch pod told --subresource=status --type=merge -p {}"
	)
	labels := func(keys string) string { return `{"metadata":{"labels":{` + keys + `}}}` }
	annotations := func(keys string) string { return `{"metadata":{"annotations":{` + keys + `}}}` }
	tell(t, []step{
		{by: user, args: apply, stdin: pod("told", idleKeys), refused: "metadata.labels: agentbox.navix.sh/"},
		{by: homonym, args: serverSide, stdin: pod("told", idleKeys), refused: onlyWorker},
		{by: worker, args: "create -f -", stdin: pod("told", idleKeys)},
		// Idle: no user can make it look claimed, or of no pool.
		{by: user, args: "label pod told --overwrite agentbox.navix.sh/sandbox-phase=running",
			refused: "metadata.labels: agentbox.navix.sh/sandbox-phase" + onlyWorker},
		{by: user, args: patch, patch: labels(`"agentbox.navix.sh/managed-by":null`), refused: "metadata.labels: agentbox.navix.sh/managed-by"},
		{by: user, args: status, patch: labels(`"agentbox.navix.sh/sandbox-id":"x"`),
			refused: "metadata.labels: agentbox.navix.sh/sandbox-id" + onlyWorker},
		{by: user, args: patch, patch: labels(`"scheduling.navix.sh/team":"a","tier":"silver"`)},
		{by: worker, args: patch, patch: claim},
		// Claimed: its identity, its tenant, its caller's labels.
		{by: user, args: patch, patch: labels(`"agentbox.navix.sh/sandbox-phase":"idle"`),
			refused: "metadata.labels: agentbox.navix.sh/sandbox-phase" + onlyWorker},
		{by: user, args: patch, patch: labels(`"agentbox.navix.sh/sandbox-id":null`),
			refused: "metadata.labels: agentbox.navix.sh/sandbox-id" + onlyWorker},
		{by: user, args: patch, patch: labels(`"tier":"lead"`), refused: "metadata.labels: tier" + onlyWorker},
		{by: user, args: patch, patch: labels(`"scheduling.navix.sh/user":"eve"`),
			refused: "metadata.labels: scheduling.navix.sh/user" + onlyWorker},
		{by: user, args: patch, patch: annotations(`"scheduling.navix.sh/team":"other"`),
			refused: "metadata.annotations: scheduling.navix.sh/team" + onlyWorker},
		{by: user, args: patch, patch: annotations(`"agentbox.navix.sh/idle-timeout":"1"`),
			refused: "metadata.annotations: agentbox.navix.sh/idle-timeout" + onlyWorker},
		{by: user, args: patch, patch: annotations(`"agentbox.navix.sh/managed-label-keys":""`),
			refused: "metadata.annotations: agentbox.navix.sh/managed-label-keys" + onlyWorker},
		{by: neighbour, args: patch, patch: labels(`"tier":null`), refused: "metadata.labels: tier" + onlyWorker},
		{by: kubelet, args: status, patch: annotations(`"agentbox.navix.sh/exit-code":"0"`),
			refused: "metadata.annotations: agentbox.navix.sh/exit-code" + onlyWorker},
		{by: user, args: serverSide, stdin: pod("told", `, labels: {tier: lead}`), refused: "metadata.labels: tier" + onlyWorker},
		// What is open to users, and what these policies leave alone.
		{by: user, args: "annotate pod told agentbox.navix.sh/recycle-policy=Replace agentbox.navix.sh/allow-drain=force note=mine"},
		{by: user, args: "label pod told mine=1"},
		{by: user, args: serverSide, stdin: pod("told", `, labels: {argo: cd}, annotations: {meta.helm.sh/release-name: x}`)},
		// Kubernetes' own parts at work.
		{by: kubelet, args: status, patch: `{"status":{"message":"seen","conditions":[{"type":"Ready","status":"True"}]}}`},
		{by: podGC, args: status, patch: `{"status":{"conditions":[{"type":"DisruptionTarget","status":"True","reason":"DeletionByPodGC"}]}}`},
		{by: collector, args: patch,
			patch: `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"kube-root-ca.crt",` +
				`"uid":"7f7f7f7f-0000-0000-0000-000000000000"}]}}`},
		{by: collector, args: patch, patch: `{"metadata":{"ownerReferences":null}}`},
		{by: user, args: "create --raw /api/v1/namespaces/default/pods/told/eviction -f -",
			stdin: `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"told","namespace":"default"},` +
				`"deleteOptions":{"dryRun":["All"]}}`},
		// Idle again: the caller's label has no owner any more.
		{by: worker, args: patch, patch: release},
		{by: user, args: patch, patch: labels(`"tier":"silver"`)},
		// The finalizer stays in an operator's reach, for a cluster whose worker is gone.
		{by: user, args: "delete pod told --wait=false"},
		{by: user, args: patch, patch: `{"metadata":{"finalizers":null}}`},
	})
}

// reservedKeys are closed to all but the worker, on what Atoll reads, and on Pods that are not its own.
func reservedKeys(t *testing.T) {
	template := func(metadata string) string {
		return `{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxTemplate, metadata: {name: told` + metadata + `},
		spec: {template: {spec: {containers: [{name: main, image: "registry.example/python:3.13"}]}}}}`
	}
	const open = `, annotations: {agentbox.navix.sh/docs: text, agentbox.navix.sh/pool-docs: text, agentbox.navix.sh/recycle-policy: Auto,
		agentbox.navix.sh/allowed-images: "a\nb", agentbox.navix.sh/allowed-containers: side, agentbox.navix.sh/allow-drain: force, ` +
		`meta.helm.sh/release-name: x}, labels: {app.kubernetes.io/managed-by: Helm, scheduling.navix.sh/team: search}`
	const reserved = ": reserved for Atoll; leave it as it is"
	global := strings.Replace(envManifest, "labels: {", "labels: {agentbox.io/sync-source: global, ", 1)
	tell(t, []step{
		{by: user, args: apply, stdin: template(open)},
		{by: user, args: apply, stdin: template(`, labels: {agentbox.navix.sh/env: x}`),
			refused: "metadata.labels: agentbox.navix.sh/env" + reserved},
		{by: user, args: serverSide, stdin: template(`, annotations: {agentbox.io/sync-source: global}`),
			refused: "metadata.annotations: agentbox.io/sync-source" + reserved},
		{by: user, args: apply, stdin: global, refused: "metadata.labels: agentbox.io/sync-source" + reserved},
		{by: user, args: apply, stdin: pool("told", `, labels: {agentbox.navix.sh/env: x}`),
			refused: "metadata.labels: agentbox.navix.sh/env" + reserved},
		{by: user, args: apply, stdin: pool("told", open)},
		// What the worker wrote stays as it is, and blocks no write.
		{by: worker, args: "label sandboxpool told agentbox.navix.sh/env=x"},
		{by: user, args: apply, stdin: pool("told", `, labels: {mine: "1"}`)},
		{by: user, args: "label sandboxpool told agentbox.navix.sh/env-", refused: "metadata.labels: agentbox.navix.sh/env" + reserved},
		{by: user, args: "annotate sandboxpool told agentbox.navix.sh/overrides={}", patch: "x",
			refused: "metadata.annotations: agentbox.navix.sh/overrides" + reserved},
		{by: collector, args: "patch sandboxpool told --type=merge -p {}", patch: `{"metadata":{"finalizers":["orphan"]}}`},
		{by: user, args: "patch sandboxpool told --type=merge -p {}", patch: `{"metadata":{"finalizers":null}}`},
		{by: user, args: "delete sandboxpool told"},
		{by: user, args: "delete sandboxtemplate told"},
		// Pods of others.
		{by: user, args: apply, stdin: pod("other", `, labels: {app: web}`)},
		{by: user, args: "label pod other agentbox.navix.sh/managed-by=sandbox-api-server",
			refused: "metadata.labels: agentbox.navix.sh/managed-by"},
		{by: user, args: "label pod other agentbox.navix.sh/sandbox-id=x", refused: "metadata.labels: agentbox.navix.sh/sandbox-id" + reserved},
		{by: user, args: "annotate pod other agentbox.navix.sh/claim-key=x",
			refused: "metadata.annotations: agentbox.navix.sh/claim-key" + reserved},
		{by: replicaSet, args: "create -f -", stdin: pod("impostor", idleKeys), refused: onlyWorker},
		{by: replicaSet, args: "create -f -", stdin: pod("replica", `, labels: {app: web, scheduling.navix.sh/team: search}`)},
		{by: user, args: "label pod other scheduling.navix.sh/user=eve mine=1"},
		{by: user, args: "delete pod other replica"},
	})
}
