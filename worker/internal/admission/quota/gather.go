// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
)

// Snapshot has the holdings of each team's pools.
type Snapshot map[string]map[types.NamespacedName]Holding

// Holding is one pool's part.
type Holding struct {
	// Wanted are the requested replicas, Live the existing Pods.
	Wanted, Live int32
	// Pod is the need of one Pod.
	Pod Amount
}

func (h Holding) amount() Amount { return h.Pod.Times(int64(max(h.Wanted, h.Live))) }

// gather reads pools, and from Envs the frozen members whose pools are not created yet. It does not copy the cache's objects.
func gather(ctx context.Context, reader client.Reader, clusterID string) (Snapshot, error) {
	s := Snapshot{}
	var envs v1alpha1.SandboxEnvList
	if err := reader.List(ctx, &envs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Envs: %w", err)
	}
	for i := range envs.Items {
		s.addEnv(&envs.Items[i], clusterID)
	}
	var pools v1alpha1.SandboxPoolList
	if err := reader.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pools: %w", err)
	}
	for i := range pools.Items {
		s.addPool(&pools.Items[i])
	}
	return s, nil
}

func (s Snapshot) addEnv(env *v1alpha1.SandboxEnv, clusterID string) {
	if env.DeletionTimestamp != nil {
		return
	}
	for _, m := range env.MembersOf(clusterID) {
		if len(m.Spec.Template.Spec.Containers) == 0 {
			continue // not admitted yet
		}
		s.add(m.Metadata.Labels[v1alpha1.LabelTeam], types.NamespacedName{Namespace: env.Namespace, Name: m.Name},
			m.Spec.Replicas, 0, &m.Spec.Template.Spec)
	}
}

func (s Snapshot) addPool(pool *v1alpha1.SandboxPool) {
	st, wanted := &pool.Status, pool.Spec.Replicas
	if pool.DeletionTimestamp != nil {
		wanted = 0
	}
	live := st.IdleReplicas + st.StartingReplicas + st.RunningReplicas + st.StoppingReplicas
	s.add(pool.Labels[v1alpha1.LabelTeam], client.ObjectKeyFromObject(pool), wanted, live, &pool.Spec.Template.Spec)
}

func (s Snapshot) add(team string, pool types.NamespacedName, wanted, live int32, spec *corev1.PodSpec) {
	if team == "" {
		return
	}
	if s[team] == nil {
		s[team] = map[types.NamespacedName]Holding{}
	}
	known := s[team][pool]
	s[team][pool] = Holding{Wanted: max(known.Wanted, wanted), Live: max(known.Live, live), Pod: needs(spec)}
}

// needs returns what a scheduler reserves for a Pod. Without requests, the limits count, as on an API server.
func needs(spec *corev1.PodSpec) Amount {
	pod := &corev1.Pod{Spec: *spec}
	if lacksRequests(spec) {
		pod = &corev1.Pod{Spec: *spec.DeepCopy()}
		for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				fillRequests(&containers[i].Resources)
			}
		}
	}
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	return Amount{Replicas: 1, CPU: requests.Cpu().MilliValue(), Memory: requests.Memory().Value()}
}

func lacksRequests(spec *corev1.PodSpec) bool {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for name := range containers[i].Resources.Limits {
				if _, ok := containers[i].Resources.Requests[name]; !ok {
					return true
				}
			}
		}
	}
	return false
}

func fillRequests(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; ok {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[name] = limit
	}
}
