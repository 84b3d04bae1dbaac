// SPDX-License-Identifier: Apache-2.0

// Package sandbox reads and writes the life of a sandbox on its Pod. It is pure: a Pod and a time go in, a typed
// decision or the bytes of one JSON patch come out. Nobody else in the worker knows the annotations.
//
//	idle ──claim──▶ running            the image is right
//	idle ──claim──▶ starting ──start──▶ running     the image is swapped in place
//	starting, running ──release──▶ stopping ──idle──▶ idle   reset, or replaced by the pool
//	any ──fail──▶ failed
//
// A pause (package pause) is no phase: a sandbox that is paused is running, with less CPU.
// A claim with post-start hooks starts even where the image is right, and keeps its container meanwhile: that it runs is what
// says that they are done.
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
// # Labels that were edited by hand
//
// The phase and the pool are labels, because Pods are selected by them, and labels are edited with one command. What a claim
// and every later transition write beside the label tells the phase of a sandbox, and its owner tells a Pod's pool: PhaseOf and
// PoolOf go by these, so that no edit hands a tenant's container to the next one, ends a sandbox, or hides one from its own
// timeouts. Package pool writes the labels back. A Pod that has lost every trace of its sandbox is replaced.
//
// # What may return to idle (I13)
//
// Recyclable lets a Pod through only when putting the idle image back restarts all of it and nothing that belongs to the
// Pod can have kept anything; ResetDone demands another container, running the idle image. In doubt the Pod is replaced.
// The policy Reuse is honoured as Replace: keeping an unreset Pod for one tenant is not built, and replacing is never
// weaker.
//
// A Pod whose CPU was taken by a pause is replaced, unless it has got all of it back (package pause).
//
// More belongs to the Pod, and outlives a swap, than its volumes. Tried with kubelet and containerd: files in /dev/shm;
// System V memory, semaphores and message queues; POSIX message queues; and, written by root, the whole of /etc/hostname
// and /etc/resolv.conf (the next tenant's name server) and the attributes of /etc/hosts. A Pod is reset only if its spec
// closes all of them, which no Pod does by chance:
//
//	spec:
//	  securityContext:
//	    runAsUser: 65532                                       # anybody but root
//	    sysctls:
//	      - {name: kernel.shm_rmid_forced, value: "1"}         # memory goes with the last process (or kernel.shmmni=0)
//	      - {name: kernel.msgmni, value: "0"}
//	      - {name: kernel.sem, value: "250 32000 32 0"}
//	      - {name: fs.mqueue.queues_max, value: "0"}
//	  containers:
//	    - securityContext: {allowPrivilegeEscalation: false}
//	      volumeMounts: [{name: no-shm, mountPath: /dev/shm}]  # an empty folder that cannot be written to
//	  volumes: [{name: no-shm, downwardAPI: {}}]
//
// All but the first sysctl need a kubelet whose allowedUnsafeSysctls name them. For any other template each release costs
// a new Pod, which on a kubelet with its defaults is the quicker way in most cases: see package pool.
//
// What Pods of one node share anyway, such as the kernel's keyrings, is no reason to replace one by another. The address
// stays with a Pod that is reset: who was told it by one tenant reaches the next.
//
// # Which image a container runs
//
// A kubelet reports an image by a name of its own choosing, among all the tags of the same content. On a Pod whose spec
// has never changed (metadata.generation 1) the running container can only be of that spec, so the report is not
// consulted; on any other it must match, and what cannot be matched is not handed out.
package sandbox
