// SPDX-License-Identifier: Apache-2.0

// Package netpolicy closes the network around the Pods of pools, and opens the destinations in a pool's annotation
// agentbox.navix.sh/egress.
//
// In: pools and SandboxTemplates. Out: for each pool a NetworkPolicy that closes the network and is owned by the pool, and another one that
// opens the listed destinations, if there are any; with Cilium a CiliumNetworkPolicy for names; and a pool.Gate: NetworkPolicyApplied, and
// that the first Pods wait for it.
//
//	egress.go      the annotation's grammar (pure)
//	render.go      the objects (pure)
//	reconciler.go
//	cleanup.go     deletes what an earlier mode made
//	gate.go
//
// # Rules
//
//   - Ingress is open only for the worker's hooks and checks; exec, logs and ports go through the kubelet. Egress is open only for listed
//     destinations: TestI14SandboxesReachWhatIsListed, TestNames, TestI14_TheNetworkOfASandboxIsClosed of e2e/kubelet. A further
//     NetworkPolicy opens more.
//   - A pool's first Pods wait for its policy, and not for one that an earlier pool of its name left behind:
//     TestI14TheFirstPodsWaitForTheirOwnPoolsPolicy. The policy is kept, and is written only if it differs: TestI14RolesOfNamespaces of
//     package runner.
//   - No policy has the name of another pool's policy; because each would replace or delete the other: TestI14NoTwoPoliciesHaveOneName.
//   - The Pod of a sandbox whose claim has denyEgress has a label that excludes it from the opening policy. The CNI needs a moment to see
//     it: TestI14SandboxesReachWhatIsListed.
//   - An invalid annotation opens nothing, and the condition says which item is invalid and what is valid. Pods keep running (I6):
//     TestParseEgressRefuses, TestI14RolesOfNamespaces of package runner.
//   - What an earlier mode made and this one does not have is deleted once: TestPoliciesOfAnEarlierModeGo. The chart gives the right to
//     CiliumNetworkPolicies with the mode cilium alone; without it, log and conditions say what a person does: TestWhatIsLeftIsTold.
//   - Addresses of cloud metadata services are cut out of wider blocks: TestI14SandboxesReachWhatIsListed, FuzzParseEgress. Blocks of such
//     addresses alone must be in the SandboxTemplate too; because cluster administrators write that: TestRestrict.
//   - The annotation is bounded: 4 KiB, 64 items, 8 ports an item (I14): TestParseEgressRefuses, FuzzParseEgress.
package netpolicy
