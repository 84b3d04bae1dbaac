// SPDX-License-Identifier: Apache-2.0

// Package pause knows what it means that a sandbox is paused: its Pod, its identity and its memory stay, its CPU is freed.
// It is pure: a Pod goes in, a typed decision comes out. Package sandbox writes it on the Pod, package sandboxes carries it out.
//
//	intent.go  what is wanted, and what the containers had: the annotation
//	cpu.go     containers, their CPU, and the floor
//	decide.go  the next step, and how far a Pod is
//
// # How a Pod is paused
//
// In place, by its `resize` subresource (GA since Kubernetes 1.35), in steps of which each finds by itself where the one
// before has come to, so that a worker that begins to lead goes on where another has left off:
//
//	pause   write the intent with the CPU that the containers have ─▶ resize to the floor ─▶ wait for the kubelet
//	resume  write the intent ─▶ resize to what was saved ─▶ wait for the kubelet ─▶ clear the annotation
//
// The subresource lets no annotation be written, so the intent is a write of its own; it comes first, since nobody could tell
// later what a Pod had that is at the floor already.
//
// A sandbox is paused when the kubelet reports the floor for the running containers, of the latest generation, with no resize
// under way; it is resumed when it reports what was saved. That the API server has taken the change says nothing.
//
// # The floor
//
// A limit goes to 10m: a kubelet gives no container less. A request goes to 10m where it equals the limit, else to 1m.
// So requests that equal limits still do, and those that are smaller still are, whatever they were: the API server refuses a
// change of the QoS class. Memory stays. A request or limit that is not there stays away: one that is added can never be
// removed from a Pod. So a container without a limit gives its request back, which lets others be scheduled, and may go on
// to use CPU that nobody else wants.
//
// The processes are not stopped: the API of runtimes (reference 003) has no hook for that, and 10m, a hundredth of a core,
// is what remains to them.
//
// # Who is not paused
//
// A Pod whose containers have no CPU to give back; one with a container that a change of its CPU would restart (its
// resizePolicy); one with a liveness probe that needs CPU to be answered, since the kubelet would end the paused container
// for not answering in time. And what a cluster does not do: an API server without the subresource, a node that cannot
// resize, an admission plugin that refuses (a LimitRange's minimum), a kubelet that calls it Infeasible (a static CPU manager).
// All of these are refusals with their reason, and leave the sandbox as it was.
//
// # When the CPU is gone
//
// What a paused sandbox gave back, another Pod may have been given. Its node then calls the resize Deferred, retries, and the
// sandbox is Resuming until there is room; a resume that a node will never do is Infeasible, and can be taken back by a
// pause. One that the API server refuses, because a quota has been used up meanwhile, leaves the sandbox paused.
package pause
