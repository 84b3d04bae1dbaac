// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

// waiting is a queue of three at every pool.
type waiting struct{}

func (waiting) Serving() bool                                  { return true }
func (waiting) Stats(types.NamespacedName) (claim.Stats, bool) { return claim.Stats{Waiting: 3}, true }
func (waiting) OnChange(func(pool types.NamespacedName))       {}
func (waiting) OnQueue(func(pool types.NamespacedName))        {}

// An Env of a mode that is not built is refused with a condition, and its numbers stay.
func TestNothingIsWrittenInAModeThatIsNotBuilt(t *testing.T) {
	for mode, want := range map[v1alpha1.SandboxEnvMode]bool{v1alpha1.SandboxEnvModeWarmPool: true,
		v1alpha1.SandboxEnvModeOnDemandJob: false} {
		t.Run(string(mode), func(t *testing.T) {
			env, yes, writes := &v1alpha1.SandboxEnv{}, true, 0
			env.Namespace, env.Name, env.UID, env.Spec.Mode = "ns", "e", "uid", mode
			env.Spec.Autoscaling = &v1alpha1.EnvAutoscalingSpec{Groups: []v1alpha1.EnvAutoscalingGroup{{Name: "default", Enabled: true}}}
			member := v1alpha1.EnvClusterMember{Name: "a", Config: v1alpha1.EnvClusterMemberConfig{ScalingGroup: "default"}}
			member.Spec.Replicas = 1
			env.Spec.Clusters = []v1alpha1.EnvClusterSpec{{ClusterID: "east", Members: []v1alpha1.EnvClusterMember{member}}}
			owner := []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SandboxEnv", Name: "e", UID: "uid",
				Controller: &yes}}
			pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "a", OwnerReferences: owner}}
			pool.Spec.Replicas = 1
			left := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b", UID: "b", OwnerReferences: owner}}
			left.Status.AutoScaling = &v1alpha1.PoolAutoScalingStatus{ObservedGeneration: 1}
			builder := fake.NewClientBuilder().WithScheme(planetest.Scheme(t)).WithObjects(env, pool, left).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					writes++
					return nil
				},
				SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
					writes++
					return nil
				},
			})
			for _, index := range sandboxcache.Indexes() {
				builder = builder.WithIndex(index.Object, index.Field, index.Extract)
			}
			recorder := events.NewFakeRecorder(10)
			r, err := New(Options{Client: builder.Build(), ClusterID: "east", Claims: waiting{}, Inventory: waiting{}, Events: recorder})
			must.Succeed(t, err)
			_, err = r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(env)})
			if err != nil || (writes > 0) != want || (len(recorder.Events) > 0) != want {
				t.Errorf("%d writes and %d events, want some: %v; error %v", writes, len(recorder.Events), want, err)
			}
			if grow, _ := r.Outlook(client.ObjectKeyFromObject(pool)); grow != want {
				t.Errorf("can grow: %v, want %v", grow, want)
			}
		})
	}
}
