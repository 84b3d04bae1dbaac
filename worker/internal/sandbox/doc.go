// SPDX-License-Identifier: Apache-2.0

// Package sandbox reads and writes a sandbox's life cycle on its Pod. It is pure. No other package writes the annotations of a sandbox, and
// few read one: pool its status detail; pause and sandboxcache its pause.
//
// In: a Pod and a time. Out: a typed decision, or the bytes of one JSON patch.
//
//	claim.go        from idle to claimed
//	transitions.go  start, release, failure, and back to idle
//	record.go       a Pod as a sandbox of the public API
//	diagnose.go     why a Pod does not serve
//	content.go      images, container and resources, for a record
//	pause.go        pause and resume
//	outcome.go      what the kubelet reports of a sandbox, and how it ended
//	recycle.go      whether a Pod may return to idle
//	residue.go      what a swap of the image leaves in a Pod
//	claimable.go    whether a Pod can be claimed
//	lifetime.go     timeouts, activity, preparation
//	idle.go         idle time, and marks for scale-down
//	state.go        labels and annotations into a State
//	backoff.go      restarts that the kubelet delays
//	env.go          the Env of a Pod or pool
//	labels.go       id, phase and pool, whatever users edited
//	image.go
//	patch.go        writes a JSON patch
//	parse.go
//
//	idle ──claim──▶ running            the image is right
//	idle ──claim──▶ starting ──start──▶ running     the image is swapped, or hooks run
//	starting, running ──release──▶ stopping ──idle──▶ idle   reset; a caller's release deletes a Pod that is replaced
//	any ──fail──▶ failed
//	paused                             running (package pause)
//
// # Every transition is one patch that tests what it relies on
//
//   - I1: a claim tests uid, phase and a missing deletionTimestamp; because only another claim or a deletion may win:
//     TestClaimLosesToAnotherClaimAndToDeletionOnly.
//   - Later patches test the sandbox id; because a late one must not touch the next tenant: TestALatePatchDoesNotTouchTheNextTenant.
//   - Patches are built by hand; because that costs 1 µs, not 30: TestPatchesAreWhatTheyWere. A claim also removes managed fields; because
//     they slow the write.
//   - Pods always have labels and annotations; because a patch below a missing map fails. When an identity is removed, its labels are
//     removed and its annotations become "", which is read as absent: TestALifeLeavesNothingBehind.
//   - PhaseOf reads annotations that transitions write beside the label, PoolOf the Pod's owner; because users edit labels:
//     TestI13_APhaseEditedByHandIsNotBelieved, TestPatchesOfAnEditedPod, TestPoolOf.
//   - A kubelet's report of an image counts only if the spec has changed (metadata.generation above 1), and must then match; because it
//     names any tag of the same content: TestSameImage.
//
// # What may return to idle (I13)
//
//   - Recyclable accepts a Pod only if a swap restarts all of it and nothing else can keep data: TestI13Residue. ResetDone requires another
//     container with the idle image: TestI13ResetDone. In doubt the Pod is replaced.
//   - The policy Reuse acts as Replace; because keeping a Pod for one tenant is not built.
//   - A paused Pod is replaced unless it has all its CPU back: TestI13APausedPodIsNotRecyclable.
//   - A reset Pod keeps its address, through which clients then reach the next tenant. Resources that the Pods of a node share, such as
//     keyrings, do not count.
//
// Not only volumes outlive a swap: /dev/shm; System V memory, semaphores and message queues; POSIX message queues; root's changes of
// /etc/hostname, /etc/resolv.conf and /etc/hosts. A Pod is reset only if its spec closes them all:
//
//	spec:
//	  securityContext:
//	    runAsUser: 65532                                       # any user but root
//	    sysctls:
//	      - {name: kernel.shm_rmid_forced, value: "1"}         # or kernel.shmmni=0
//	      - {name: kernel.msgmni, value: "0"}
//	      - {name: kernel.sem, value: "250 32000 32 0"}
//	      - {name: fs.mqueue.queues_max, value: "0"}
//	  containers:
//	    - securityContext: {allowPrivilegeEscalation: false}
//	      volumeMounts: [{name: no-shm, mountPath: /dev/shm}]  # empty and read-only
//	  volumes: [{name: no-shm, downwardAPI: {}}]
//
// All but the first sysctl need the kubelet's allowedUnsafeSysctls. Otherwise each release costs a new Pod.
package sandbox
