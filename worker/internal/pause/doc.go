// SPDX-License-Identifier: Apache-2.0

// Package pause decides how a sandbox is paused: its Pod, identity and memory stay, and its CPU is freed.
//
// In: a Pod. Out: a decision. It is pure.
//
//	decide.go  the next step
//	intent.go  the annotation: target, saved CPU
//	cpu.go     containers, and the floor
//
// # How a Pod is paused
//
// A Pod is paused in place, through its `resize` subresource (GA since Kubernetes 1.35), in steps derived from the Pod, because a new
// leader must be able to continue:
//
//	pause   write the intent with the present CPU ─▶ resize to the floor ─▶ wait for the kubelet
//	resume  write the intent ─▶ resize to what was saved ─▶ wait for the kubelet ─▶ clear the annotation
//
// The intent is written first, because the subresource accepts no annotations, and a Pod at the floor does not show its former CPU. A
// sandbox is paused or resumed when the kubelet reports so for the latest generation, with no resize under way.
//
// # The floor
//
//   - A limit goes to 10m, a kubelet's minimum. A request goes to 10m if it equals the limit, else to 1m; because the QoS class must stay:
//     TestFloor.
//   - Memory stays. Processes keep running; because runtimes have no hook to stop them.
//   - No request or limit is added; because it cannot be removed. A container without a limit frees its request alone.
//
// # What is not paused (TestDecide)
//
//   - A Pod without CPU to free, with a container that a resize restarts (resizePolicy), or with a liveness probe that needs CPU.
//   - A Pod for which the API server, the node, a plugin or the kubelet (Infeasible) refuses the resize.
//
// A refusal has a reason and changes nothing.
//
// # When the CPU is gone
//
//   - While another Pod has the CPU, the node defers the resize, and the sandbox is Resuming.
//   - A pause takes an Infeasible resume back.
//   - A refused resume leaves the sandbox paused.
package pause
