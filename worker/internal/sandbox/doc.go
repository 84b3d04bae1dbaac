// SPDX-License-Identifier: Apache-2.0

// Package sandbox reads and writes the life of a sandbox on its Pod. It is pure, and the only part of the worker that knows the
// annotations.
//
// In: a Pod and a time. Out: a typed decision, or the bytes of one JSON patch.
//
//	idle ──claim──▶ running            the image is right
//	idle ──claim──▶ starting ──start──▶ running     the image is swapped in place
//	starting, running ──release──▶ stopping ──idle──▶ idle   reset, or replaced by the pool
//	any ──fail──▶ failed
//
// A pause (package pause) is no phase: a paused sandbox is running, with less CPU. A claim with post-start hooks goes through
// starting even where the image is right, and keeps its container; the phase running then says that the hooks are done.
//
// # Every transition is one patch that tests what it relies on
//
//   - I1: a claim tests uid, phase and a missing deletionTimestamp. It loses to another claim and to a deletion, and never to a
//     kubelet's status write: TestClaimLosesToAnotherClaimAndToDeletionOnly.
//   - Every later patch tests the sandbox id; because a late one must not touch the Pod's next tenant:
//     TestALatePatchDoesNotTouchTheNextTenant.
//   - Patches are written by hand; because that costs 1 µs and a computed one 30 µs: TestPatchesAreWhatTheyWere. A claim's patch
//     also removes the Pod's managed fields, which are a good part of the API server's work for a write.
//   - Pods are created with labels and annotations; because an `add` or `remove` below a missing map fails a whole patch. Labels
//     are removed with the identity; annotations are set to "" and read as absent: TestALifeLeavesNothingBehind.
//
// # Labels that were edited by hand
//
// The phase and the pool are labels, because Pods are selected by them, and labels are easily edited. PhaseOf therefore reads the
// phase from what a claim and every later transition write beside the label, and PoolOf reads the pool from the Pod's owner. So
// no edit hands a tenant's container to the next one, ends a sandbox, or hides one from its own timeouts:
// TestI13_APhaseEditedByHandIsNotBelieved, TestPatchesOfAnEditedPod, TestPoolOf. Package pool writes the labels back, and
// replaces a Pod that has lost every trace of its sandbox.
//
// # What may return to idle (I13)
//
//   - Recyclable accepts a Pod only if swapping the idle image back restarts all of it, and nothing that belongs to the Pod can
//     have kept data: TestI13Residue. ResetDone requires another container that runs the idle image: TestI13ResetDone. In doubt
//     the Pod is replaced.
//   - The policy Reuse is treated as Replace; because keeping an unreset Pod for one tenant is not built, and replacing is never
//     weaker.
//   - A Pod whose CPU was taken by a pause is replaced, unless it has got all of it back (package pause):
//     TestI13APausedPodIsNotRecyclable.
//
// More than volumes belongs to the Pod and outlives a swap. Tried with kubelet and containerd: files in /dev/shm; System V
// memory, semaphores and message queues; POSIX message queues; and, written by root, all of /etc/hostname and /etc/resolv.conf
// (the next tenant's name server) and the attributes of /etc/hosts. A Pod is reset only if its spec closes all of them, which no
// Pod does by chance:
//
//	spec:
//	  securityContext:
//	    runAsUser: 65532                                       # any user but root
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
// All but the first sysctl need a kubelet whose allowedUnsafeSysctls name them. With any other template each release costs a new
// Pod. On a kubelet with default settings that is usually faster anyway: see package pool.
//
// What Pods of one node share, such as the kernel's keyrings, is no reason to replace a Pod. A Pod that is reset keeps its
// address: a client that got it from one tenant reaches the next.
//
// # Which image a container runs
//
// A kubelet chooses the name that it reports for an image, from all the tags of the same content. On a Pod whose spec has never
// changed (metadata.generation 1) the running container can only be of that spec, and the report is ignored. On any other Pod it
// must match, and a Pod whose report cannot be matched is not handed out: TestSameImage.
package sandbox
