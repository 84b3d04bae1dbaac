// SPDX-License-Identifier: Apache-2.0

// Package pause decides how a sandbox is paused: its Pod, its identity and its memory stay, its CPU is freed.
//
// In: a Pod. Out: a typed decision. The package is pure: package sandbox writes the intent on the Pod, package sandboxes carries
// out the decision. Each step is derived from the Pod alone, so a new leader can continue.
//
//	decide.go  the next step, and how far a Pod is
//	intent.go  the annotation: the target, and the CPU that the containers had
//	cpu.go     containers, their CPU, and the floor
//
// # How a Pod is paused
//
// In place, by its `resize` subresource (GA since Kubernetes 1.35), in steps. Each step reads from the Pod what was done before,
// so that a new leader continues where the last one stopped:
//
//	pause   write the intent with the CPU that the containers have ─▶ resize to the floor ─▶ wait for the kubelet
//	resume  write the intent ─▶ resize to what was saved ─▶ wait for the kubelet ─▶ clear the annotation
//
// The subresource accepts no annotations, so the intent is a write of its own. It comes first, because a Pod at the floor no
// longer shows what it had.
//
// A sandbox is paused when the kubelet reports the floor for the running containers, of the latest generation, with no resize
// under way. It is resumed when the kubelet reports what was saved. The API server's acceptance of the change proves neither.
//
// # The floor
//
//   - A limit goes to 10m, because a kubelet gives no container less. A request goes to 10m where it equals the limit, else to
//     1m. So requests that equal limits still do, and smaller ones stay smaller, because the API server refuses a change of the
//     QoS class; held by TestFloor.
//   - Memory stays.
//   - No request or limit is added where there was none, because it can never be removed from a Pod. So a container without a
//     limit frees its request, which lets other Pods be scheduled, and may still use CPU that is spare.
//   - The processes are not stopped: the API of runtimes (reference 003) has no hook for that. They keep 10m, a hundredth of a
//     core.
//
// # What is not paused
//
//   - A Pod whose containers have no CPU to free.
//   - A Pod with a container that a change of its CPU would restart (its resizePolicy).
//   - A Pod with a liveness probe that needs CPU to respond, because the kubelet would end the paused container for responding
//     too late.
//   - What the cluster does not support: an API server without the subresource, a node that cannot resize, an admission plugin
//     that refuses (a LimitRange's minimum), a kubelet that reports Infeasible (a static CPU manager).
//
// All of these are refusals with their reason, and leave the sandbox as it was; held by TestDecide.
//
// # When the CPU is gone
//
//   - Another Pod may have got what a paused sandbox freed. Then the node reports the resize as Deferred and retries, and the
//     sandbox is Resuming until there is room.
//   - A resume that a node can never do is Infeasible, and a pause can take it back.
//   - A resume that the API server refuses, because a quota is now used up, leaves the sandbox paused.
package pause
