// SPDX-License-Identifier: Apache-2.0

// Package sandbox reads and writes the life of a sandbox on its Pod. It is pure: a Pod and a time go in, a typed
// decision or the bytes of one JSON patch come out. Nobody else in the worker knows the annotations.
//
//	idle ──claim──▶ running            the image is right
//	idle ──claim──▶ starting ──start──▶ running     the image is swapped in place
//	starting, running ──release──▶ stopping ──idle──▶ idle   reset, or replaced by the pool
//	any ──fail──▶ failed
//
// # Every transition is one patch that tests what it relies on
//
// A claim tests uid, phase and a missing deletionTimestamp, so that it loses to another claim and to a deletion, and
// never to a kubelet's status write (I1). Every later patch tests the sandbox id, so that a late one never touches the
// Pod's next tenant. A patch is written by hand because that costs 1 µs, a computed one 30 µs. The claim's also ends the
// Pod's managed fields, whose upkeep is a good part of what the API server does for a write.
//
// Pods are born with labels and annotations: an `add` or `remove` below a missing map fails a whole patch. Labels go
// when the identity goes; annotations are cleared to "" and read as absent.
//
// # What may return to idle (I13)
//
// Recyclable lets a Pod through only when putting the idle image back restarts all of it and no volume can have kept
// anything; ResetDone demands another container, running the idle image. In doubt the Pod is replaced. The policy Reuse
// is honoured as Replace: keeping an unreset Pod for one tenant is not built, and replacing is never weaker.
//
// Not covered: with the container runtimes in use, /dev/shm, System V memory and message queues belong to the Pod, not to
// the container, and outlive a swap. Nothing in a Pod's API forbids a tenant to use them. A pool whose tenants do not trust
// each other that far sets the policy Replace.
//
// # Which image a container runs
//
// A kubelet reports an image by a name of its own choosing, among all the tags of the same content. On a Pod whose spec
// has never changed (metadata.generation 1) the running container can only be of that spec, so the report is not
// consulted; on any other it must match, and what cannot be matched is not handed out.
package sandbox
