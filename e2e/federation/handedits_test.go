// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// handEdit is a user's kubectl edit of another writer's fields, in cluster east.
type handEdit struct {
	what   string
	policy string // that refuses it
	args   []string
	// repaired returns nil when the edit is reverted, and otherwise the current state. If nil, nothing reverts the edit.
	repaired func(context.Context) error
}

// I3: users cannot write fields of a worker or of the sync path. Where no policy enforces that, the edit is reverted.
func TestI3_HandEdits(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "edited", equally(2)...)
	e.wantAllSegments(ctx, t)
	sandbox := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{Clusters: []string{"east"}})
	for _, edit := range e.handEdits(ctx, t, sandbox.GetPod()) {
		t.Run(edit.what, func(t *testing.T) {
			_, err := kubectl(ctx, "east", edit.args...)
			if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+edit.policy+"'") {
				t.Fatalf("policy %s does not refuse it: %v", edit.policy, err)
			}
			if edit.repaired == nil {
				return
			}
			withoutPolicy(ctx, t, "east", edit.policy)
			wait.For(t, patience, "the edit to be let in without policy "+edit.policy, func(ctx context.Context) error {
				_, err := kubectl(ctx, "east", edit.args...)
				return err
			})
			wait.For(t, patience, "the edit to be repaired", edit.repaired)
		})
	}
	t.Run("removing another cluster's segment is open to users", func(t *testing.T) {
		_, err := kubectl(ctx, "east", e.patchSegment(ctx, t, "west", "remove", "")...)
		must.Succeed(t, err)
		e.waitSegment(ctx, t, "east", "west", "idle=2 running=0 desired=2")
	})
	mustVerify(ctx, t)
}

func (e *env) handEdits(ctx context.Context, t *testing.T, claimed string) []handEdit {
	t.Helper()
	return []handEdit{
		{
			what: "replicas of an Env's pool", policy: "atoll-pool-replicas",
			args: []string{"patch", "sandboxpool", e.Pool("east"), "--type=merge", `--patch={"spec": {"replicas": 5}}`},
			repaired: func(ctx context.Context) error {
				var pool v1alpha1.SandboxPool
				err := kube["east"].Get(ctx, client.ObjectKey{Namespace: namespace, Name: e.Pool("east")}, &pool)
				return errors.Join(err, wait.If(pool.Spec.Replicas == 2, fmt.Sprintf("replicas %d", pool.Spec.Replicas)))
			},
		},
		{
			what: "another cluster's segment", policy: "atoll-env-segments",
			args: e.patchSegment(ctx, t, "west", "replace", "/observedMembers/0/idleCount"),
			repaired: func(ctx context.Context) error {
				got, err := e.segment(ctx, "east", "west")
				return errors.Join(err, wait.If(got == "idle=2 running=0 desired=2", got))
			},
		},
		{what: "whose a sandbox is", policy: "atoll-sandboxes",
			args: []string{"label", "pod", claimed, "--overwrite", v1alpha1.SandboxPhaseLabelKey + "=" + v1alpha1.SandboxPhaseIdle}},
	}
}

// patchSegment returns the arguments that change a cluster's segment in the Env in east.
func (e *env) patchSegment(ctx context.Context, t *testing.T, of, op, field string) []string {
	t.Helper()
	got, err := e.get(ctx, "east")
	must.Succeed(t, err)
	for i, s := range got.Status.Clusters {
		if s.ClusterID == of {
			path := fmt.Sprintf("/status/clusters/%d", i)
			patch := fmt.Sprintf(`[{"op": "test", "path": "%s/clusterID", "value": %q}, {"op": %q, "path": "%s%s", "value": 99}]`, path, of, op,
				path, field)
			return []string{"patch", "sandboxenv", e.Name, "--subresource=status", "--type=json", "--patch=" + patch}
		}
	}
	t.Fatalf("east shows no segment of %s", of)
	return nil
}

func kubectl(ctx context.Context, cluster string, args ...string) (string, error) {
	return atoll.Cluster(cluster).Kubectl(ctx, append([]string{"--namespace", namespace}, args...)...)
}

// withoutPolicy removes the binding of a policy until the end of the test.
func withoutPolicy(ctx context.Context, t *testing.T, cluster, policy string) {
	t.Helper()
	const resource = "validatingadmissionpolicybinding"
	binding, err := kubectl(ctx, cluster, "get", resource, policy, "--output=json")
	must.Succeed(t, err)
	_, err = kubectl(ctx, cluster, "delete", resource, policy)
	must.Succeed(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testLimit)
		defer cancel()
		if out, err := atoll.Cluster(cluster).KubectlInput(ctx, strings.NewReader(binding), "create", "-f", "-"); err != nil {
			t.Errorf("putting policy %s back: %v %s", policy, err, out)
		}
	})
}
