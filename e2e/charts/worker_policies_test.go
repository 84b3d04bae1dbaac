// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// who is a caller of the API server: flags of kubectl. All but Atoll's own accounts have every right, so that it is
// the policies that refuse and not RBAC.
type who []string

const account = "--as=system:serviceaccount:"

var (
	worker     = who{account + "atoll-system:atoll-worker"}
	syncPath   = who{account + "atoll-system:atoll-sync"}
	user       = who{"--as=jane", "--as-group=system:masters"}
	neighbour  = who{account + "atoll-system:default", "--as-group=system:masters"}
	homonym    = who{account + "default:atoll-worker", "--as-group=system:masters"}
	collector  = who{account + "kube-system:generic-garbage-collector", "--as-group=system:masters"}
	autoscaler = who{account + "kube-system:horizontal-pod-autoscaler", "--as-group=system:masters"}
	replicaSet = who{account + "kube-system:replicaset-controller", "--as-group=system:masters"}
	podGC      = who{account + "kube-system:pod-garbage-collector", "--as-group=system:masters"}
	kubelet    = who{"--as=system:node:east-node-0", "--as-group=system:masters"}
)

// step is one request of a story. Without refused it must pass; with it, a policy must refuse it in these words.
type step struct {
	by      who
	args    string // of kubectl, split at spaces; {} stands for what follows in patch
	patch   string
	stdin   string
	refused string
}

func kubectl(ctx context.Context, s step) (string, error) {
	args := append([]string{}, s.by...)
	for _, arg := range strings.Fields(s.args) {
		if arg == "{}" {
			arg = s.patch
		}
		args = append(args, arg)
	}
	return east.KubectlInput(ctx, strings.NewReader(s.stdin), args...)
}

// tell carries out a story's steps in order. Every refused request is repeated by the worker, or whom the refusal names,
// elsewhere in the story.
func tell(t *testing.T, story []step) {
	t.Helper()
	for i, s := range story {
		out, err := kubectl(t.Context(), s)
		label := fmt.Sprintf("step %d, %s %s %s\n%s", i+1, strings.Join(s.by, " "), s.args, s.patch, s.stdin)
		switch {
		case s.refused == "" && err != nil:
			t.Errorf("%s\nmust pass: %v %s", label, err, out)
		case s.refused != "" && err == nil:
			t.Errorf("%s\nmust be refused: %s", label, out)
		case s.refused != "" && (!strings.Contains(err.Error(), s.refused) ||
			!strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'atoll-")):
			t.Errorf("%s\nmust be refused because of %q, was because of %v", label, s.refused, err)
		}
	}
}

// enforced waits until the API server refuses a request: policies and their parameters reach it through a watch.
func enforced(t *testing.T, s step) {
	t.Helper()
	wait.For(t, 20*time.Second, fmt.Sprintf("%s %s to be refused because of %q", s.args, s.patch, s.refused), func(ctx context.Context) error {
		_, err := kubectl(ctx, s)
		return wait.If(err != nil && strings.Contains(err.Error(), s.refused), err)
	})
}

// TestPolicies installs the chart once and tells of each policy what it lets through and what it refuses.
func TestPolicies(t *testing.T) {
	installWorker(t)
	t.Run("I3/segments are written by their owners", segmentsOfOwners)
	t.Run("I14/snapshots are the worker's", snapshotsOfTheWorker)
	t.Run("replicas of an Env's pool are the worker's", poolReplicas)
	t.Run("sandboxes are the worker's", sandboxes)
	t.Run("reserved keys are closed", reservedKeys)
	t.Run("a Pod template is one", podTemplates)
	t.Run("what is probably not meant", plausible)
	t.Run("fields beyond the Pod", podFields)
}

const (
	apply      = "apply -f -"
	serverSide = "apply --server-side --force-conflicts -f -"
)

// envManifest has a segment of another cluster as well: it is accepted, and ignored.
const envManifest = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: told, namespace: default, labels: {app.kubernetes.io/managed-by: Helm}, annotations: {argocd.argoproj.io/tracking-id: x}}
spec:
  mode: WarmPool
  templateRef: {name: told}
  clusters:
  - clusterID: east
    members: [{name: told-east, spec: {replicas: 3}, config: {inlineResources: {requests: {cpu: 10m}}}}]
  - clusterID: west
    members: [{name: told-west, spec: {replicas: 4}, config: {inlineResources: {requests: {cpu: 10m}}}}]
`

// segments is a server-side apply of an Env's status: clusterID and idleCount, in turns.
func segments(idle int, ids ...string) string {
	var clusters []string
	for _, id := range ids {
		clusters = append(clusters, fmt.Sprintf("{clusterID: %s, isLocal: %t, observedMembers: [{name: told-%s, idleCount: %d}]}", id,
			id == "east", id, idle))
	}
	return `{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxEnv, metadata: {name: told, namespace: default}, status: {clusters: [` +
		strings.Join(clusters, ", ") + `]}}`
}

// snapshotsOfTheWorker (I14): what pools are made from comes from the worker, also where an account may write an Env's status. The role
// edit of Kubernetes does not include that.
func snapshotsOfTheWorker(t *testing.T) {
	const (
		freeze  = "patch sandboxenv told --subresource=status --type=merge -p {}"
		own     = "apply --server-side --force-conflicts --subresource=status -f - --field-manager=atoll-worker"
		refused = "status.snapshots[told-east]: what pools are made from is written by atoll-worker alone"
	)
	snapshot := func(pod string) string {
		return `{"apiVersion":"agents.navix.sh/v1alpha1","kind":"SandboxEnv","metadata":{"name":"told","namespace":"default"},` +
			`"status":{"snapshots":[{"clusterID":"east","name":"told-east","spec":{"replicas":3,"template":{"spec":{` + pod +
			`"containers":[{"name":"main","image":"a"}]}}}}]}}`
	}
	tell(t, []step{
		{by: user, args: apply, stdin: envManifest},
		{by: user, args: freeze, patch: snapshot(`"hostNetwork":true,`), refused: refused},
		{by: worker, args: own, stdin: snapshot("")},
		{by: user, args: freeze, patch: snapshot(`"hostNetwork":true,`), refused: refused},
		{by: homonym, args: freeze, patch: snapshot(`"hostPID":true,`), refused: refused},
		{by: syncPath, args: own, stdin: snapshot(`"hostPID":true,`), refused: refused},
		// Others go on with what is there.
		{by: user, args: freeze, patch: `{"status":{"idleReplicas":7}}`},
		{by: user, args: apply, stdin: envManifest},
		{by: user, args: freeze, patch: `{"status":{"snapshots":null}}`},
		{by: worker, args: own, stdin: snapshot("")},
		{by: user, args: "create rolebinding editor --clusterrole=edit --user=ed"},
	})
	for _, resource := range []string{"sandboxenvs", "sandboxpools"} {
		out, err := kubectl(t.Context(), step{by: who{"--as=ed"}, args: "auth can-i patch " + resource + " --subresource=status"})
		if err == nil || !strings.Contains(out+err.Error(), "no") {
			t.Errorf("the role edit may write the status of %s: %s, %v", resource, out, err)
		}
	}
	tell(t, []step{
		{by: user, args: "delete rolebinding editor"},
		{by: user, args: "delete sandboxenv told"},
	})
}

// segmentsOfOwners (I3): foreign ones by the sync path, the local one not by it.
func segmentsOfOwners(t *testing.T) {
	const (
		status  = "apply --server-side --force-conflicts --subresource=status -f - --field-manager=atoll-"
		patch   = "patch sandboxenv told --subresource=status --type=merge -p {}"
		remove  = "patch sandboxenv told --subresource=status --type=json -p {}"
		foreign = "]: what other clusters report is written by atoll-sync alone; change it in that cluster"
	)
	tell(t, []step{
		{by: user, args: apply, stdin: envManifest},
		{by: worker, args: status + "worker", stdin: segments(1, "east")},
		{by: syncPath, args: status + "sync", stdin: segments(1, "west", "south")},
		// A field manager's name is no identity.
		{by: user, args: status + "sync", stdin: segments(2, "west", "south"), refused: "status.clusters[west, south" + foreign},
		{by: neighbour, args: status + "sync", stdin: segments(1, "west", "south", "north"), refused: "status.clusters[north" + foreign},
		{by: homonym, args: status + "worker", stdin: segments(2, "east", "west"), refused: "status.clusters[west" + foreign},
		{by: worker, args: status + "worker", stdin: segments(2, "east", "west"), refused: "status.clusters[west" + foreign},
		{by: user, args: patch, patch: `{"status":{"clusters":[{"clusterID":"west","isLocal":true}]}}`,
			refused: "status.clusters[west" + foreign},
		{by: user, args: remove, patch: `[{"op":"add","path":"/status/clusters/-","value":{"clusterID":"north"}}]`,
			refused: "status.clusters[north" + foreign},
		{by: syncPath, args: status + "sync", stdin: segments(2, "west", "south", "east"),
			refused: "status.clusters[east]: this cluster's own segment is written by atoll-worker"},
		// Both go on, each with its own.
		{by: worker, args: status + "worker", stdin: segments(2, "east")},
		{by: syncPath, args: status + "sync", stdin: segments(2, "south", "west", "north")},
		// A writer of status may remove a foreign segment, and order and other fields are free.
		{by: user, args: patch, patch: `{"status":{"idleReplicas":7,"clusters":[
			{"clusterID":"west","isLocal":false,"observedMembers":[{"name":"told-west","idleCount":2}]},
			{"clusterID":"east","isLocal":true,"observedMembers":[{"name":"told-east","idleCount":2}]}]}}`},
		{by: syncPath, args: status + "sync", stdin: segments(3, "west")},
		// The routes by which manifests come, unchanged.
		{by: user, args: apply, stdin: envManifest},
		{by: user, args: serverSide, stdin: envManifest},
		{by: user, args: "replace -f -", stdin: envManifest},
		{by: user, args: "label sandboxenv told mine=1"},
		{by: collector, args: "patch sandboxenv told --type=merge -p {}", patch: `{"metadata":{"finalizers":["foregroundDeletion"]}}`},
		{by: user, args: "patch sandboxenv told --type=merge -p {}", patch: `{"metadata":{"finalizers":null}}`},
		{by: user, args: "delete sandboxenv told"},
	})
}

func pool(name, metadata string) string {
	return fmt.Sprintf(`{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxPool, metadata: {name: %s, namespace: default%s},
	spec: {replicas: 3, template: {spec: {containers: [{name: main, image: "registry.example/python:3.13"}]}}}}`, name, metadata)
}

const ofEnv = `, labels: {agentbox.navix.sh/env: told}, ownerReferences: [{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxEnv, ` +
	`name: told, uid: %s}]`

// poolReplicas of an Env's pool are the worker's, by the pool and by its scale; those of a pool of one's own are one's own.
func poolReplicas(t *testing.T) {
	tell(t, []step{{by: user, args: apply, stdin: envManifest}})
	uid, err := east.Kubectl(t.Context(), "get", "sandboxenv", "told", "-o", "jsonpath={.metadata.uid}")
	must.Succeed(t, err)
	tell(t, []step{
		{by: worker, args: apply, stdin: pool("owned", fmt.Sprintf(ofEnv, uid))},
		{by: user, args: apply, stdin: pool("free", "")},
	})
	const (
		patch   = "patch sandboxpool owned --type=merge -p {}"
		refused = "spec.replicas: the pool belongs to SandboxEnv told; set spec.replicas of member owned there"
	)
	scale := step{by: user, args: "scale sandboxpool owned --replicas=9", refused: refused}
	enforced(t, scale)
	tell(t, []step{
		{by: user, args: patch, patch: `{"spec":{"replicas":9}}`, refused: refused},
		{by: user, args: patch, patch: `{"spec":{"replicas":9},"metadata":{"ownerReferences":null}}`, refused: refused},
		{by: homonym, args: patch, patch: `{"spec":{"replicas":0}}`, refused: refused},
		{by: user, args: serverSide,
			stdin:   `{apiVersion: agents.navix.sh/v1alpha1, kind: SandboxPool, metadata: {name: owned, namespace: default}, spec: {replicas: 9}}`,
			refused: refused},
		{by: autoscaler, args: "patch sandboxpool owned --subresource=scale --type=merge -p {}", patch: `{"spec":{"replicas":9}}`,
			refused: refused},
		{by: worker, args: patch, patch: `{"spec":{"replicas":5}}`},
		// The same number, and other fields.
		{by: user, args: "scale sandboxpool owned --replicas=5"},
		{by: user, args: patch, patch: `{"spec":{"idleImage":"registry.example/idle:1"},"metadata":{"labels":{"mine":"1"}}}`},
		{by: user, args: "scale sandboxpool free --replicas=9"},
		{by: user, args: "patch sandboxpool free --type=merge -p {}", patch: `{"spec":{"replicas":2}}`},
		{by: autoscaler, args: "scale sandboxpool free --replicas=4"},
		// An Env that is deleted leaves its pools behind with --cascade=orphan.
		{by: collector, args: patch, patch: `{"metadata":{"ownerReferences":null}}`},
		{by: user, args: patch, patch: `{"spec":{"replicas":1}}`},
		{by: user, args: "delete sandboxenv told"},
		{by: user, args: "delete sandboxpool owned free"},
	})
}
