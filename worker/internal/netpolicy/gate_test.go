// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane/planetest"
)

// A pool's first Pods wait for its own policy. That of a pool of the same name, which was deleted, goes at any moment.
func TestI14TheFirstPodsWaitForTheirOwnPoolsPolicy(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(planetest.Scheme(t)).Build()
	r := &Reconciler{opts: Options{Mode: Kubernetes}, standard: &Egress{}, client: c}
	again := poolTold()
	again.UID = "v"
	check := func(when string, pool *v1alpha1.SandboxPool, awaits bool, reason v1alpha1.ConditionReason) {
		t.Helper()
		gate, err := r.Of(t.Context(), pool)
		must.Succeed(t, err)
		if gate.Awaits != awaits || len(gate.Conditions) != 1 || gate.Conditions[0].Reason != reason {
			t.Errorf("%s: the gate is %+v, want that Pods wait: %t, and %s", when, gate, awaits, reason)
		}
	}
	check("without a policy", poolTold(), true, v1alpha1.ReasonNetworkPolicyPending)
	must.Succeed(t, c.Create(t.Context(), Policy(poolTold(), Worker{})))
	check("with its policy", poolTold(), false, v1alpha1.ReasonNetworkPolicyApplied)
	check("with the policy of an earlier pool", again, true, v1alpha1.ReasonNetworkPolicyPending)
}
