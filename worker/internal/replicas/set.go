// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/worker/internal/controllers"
)

// ErrMoved: the Env is not as it was read any more. Nothing was written.
var ErrMoved = errors.New("the member's replicas are not what they were")

// Set is the autoscaler's one write to an Env: the replicas of a local member, if they still are those in env. It returns the
// Env's new resourceVersion. The patch is raw, as are all writes of Envs, and tests the member at its place; other changes of the
// Env do not matter.
func Set(ctx context.Context, c client.Client, env *v1alpha1.SandboxEnv, clusterID, member string, to int32) (version string, err error) {
	ops, err := replicasPatch(env, clusterID, member, to)
	if err != nil {
		return "", err
	}
	body, err := patch.JSON(ops)
	if err != nil {
		return "", err
	}
	answer := &v1alpha1.SandboxEnv{}
	answer.Namespace, answer.Name = env.Namespace, env.Name
	err = c.Patch(ctx, answer, client.RawPatch(types.JSONPatchType, body), client.FieldOwner(controllers.FieldManager))
	switch {
	case patch.LostRace(err):
		return "", fmt.Errorf("%w: %w", ErrMoved, err)
	case err != nil:
		return "", fmt.Errorf("setting replicas of member %s: %w", member, err)
	}
	return answer.ResourceVersion, nil
}

func replicasPatch(env *v1alpha1.SandboxEnv, clusterID, member string, to int32) ([]patch.Operation, error) {
	for i := range env.Spec.Clusters {
		cluster := &env.Spec.Clusters[i]
		if cluster.ClusterID != clusterID {
			continue
		}
		at := "/spec/clusters/" + strconv.Itoa(i)
		for j := range cluster.Members {
			if m := &cluster.Members[j]; m.Name == member {
				place := at + "/members/" + strconv.Itoa(j)
				return []patch.Operation{
					patch.Test("/metadata/uid", string(env.UID)),
					patch.Test(at+"/clusterID", clusterID),
					patch.Test(place+"/name", member),
					patch.Test(place+"/spec/replicas", m.Spec.Replicas),
					patch.Replace(place+"/spec/replicas", to),
				}, nil
			}
		}
	}
	return nil, fmt.Errorf("member %s: %w", member, ErrMoved)
}
