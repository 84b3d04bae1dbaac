// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

// ErrMoved means that the Env has changed since it was read. Nothing was written.
var ErrMoved = errors.New("the member's replicas are not what they were")

// Set writes the replicas of a local member if they are still those in env. It is the autoscaler's one write to an Env. It writes them
// where they are: in the member's spec if a manifest states them there, else in the status, because applying a manifest that does not state
// them would remove them from the spec. It returns the Env's new resourceVersion. The patch is raw, as are all writes of Envs, and tests
// the member at its position; other changes of the Env do not matter.
func Set(ctx context.Context, c client.Client, env *v1alpha1.SandboxEnv, clusterID, member string, to int32) (version string, err error) {
	from, ok := replicasOf(env, clusterID, member)
	if !ok {
		return "", fmt.Errorf("member %s: %w", member, ErrMoved)
	}
	doc := &unstructured.Unstructured{}
	doc.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.SandboxEnvOwnerKind))
	err = c.Get(ctx, client.ObjectKeyFromObject(env), doc) // live: clients do not cache documents
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("member %s: %w", member, ErrMoved)
	}
	if err != nil {
		return "", fmt.Errorf("reading the Env of member %s: %w", member, err)
	}
	ops, ofStatus := replicasPatch(doc.Object, string(env.UID), clusterID, member, from, to)
	if ops == nil {
		return "", fmt.Errorf("member %s: %w", member, ErrMoved)
	}
	body, err := patch.JSON(ops)
	if err != nil {
		return "", err
	}
	answer, owner := &v1alpha1.SandboxEnv{}, client.FieldOwner(controllers.FieldManager)
	answer.Namespace, answer.Name = env.Namespace, env.Name
	if ofStatus {
		err = c.Status().Patch(ctx, answer, client.RawPatch(types.JSONPatchType, body), owner)
	} else {
		err = c.Patch(ctx, answer, client.RawPatch(types.JSONPatchType, body), owner)
	}
	switch {
	case patch.LostRace(err):
		return "", fmt.Errorf("%w: %w", ErrMoved, err)
	case err != nil:
		return "", fmt.Errorf("setting replicas of member %s: %w", member, err)
	}
	return answer.ResourceVersion, nil
}

// replicasOf returns the replicas of a member, given a cached Env.
func replicasOf(env *v1alpha1.SandboxEnv, clusterID, name string) (int32, bool) {
	for _, member := range env.MembersOf(clusterID) {
		if member.Name == name {
			return member.Spec.Replicas, true
		}
	}
	return 0, false
}

// replicasPatch returns the patch, given the document of an Env, or nil if the Env has no such member.
func replicasPatch(doc map[string]any, uid, clusterID, name string, from, to int32) (ops []patch.Operation, ofStatus bool) {
	clusters, _, _ := unstructured.NestedSlice(doc, "spec", "clusters")
	for i := range clusters {
		cluster, _ := clusters[i].(map[string]any)
		if cluster["clusterID"] != clusterID {
			continue
		}
		members, _ := cluster["members"].([]any)
		for j := range members {
			member, _ := members[j].(map[string]any)
			if member["name"] != name {
				continue
			}
			at := "/spec/clusters/" + strconv.Itoa(i)
			place := at + "/members/" + strconv.Itoa(j)
			ops = []patch.Operation{
				patch.Test("/metadata/uid", uid), patch.Test(at+"/clusterID", clusterID), patch.Test(place+"/name", name),
			}
			if _, stated, _ := unstructured.NestedFieldNoCopy(member, "spec", "replicas"); stated {
				return append(ops, patch.Test(place+"/spec/replicas", from), patch.Replace(place+"/spec/replicas", to)), false
			}
			n := sandboxcache.SnapshotIndex(doc, clusterID, name)
			if n < 0 {
				return nil, false
			}
			frozen := "/status/snapshots/" + strconv.Itoa(n)
			return append(ops, patch.Test(frozen+"/clusterID", clusterID), patch.Test(frozen+"/name", name),
				patch.Test(frozen+"/spec/replicas", from), patch.Replace(frozen+"/spec/replicas", to)), true
		}
	}
	return nil, false
}
