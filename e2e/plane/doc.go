// SPDX-License-Identifier: Apache-2.0

// Package plane runs real Kubernetes control planes on one machine.
//
// In: names. Out: planes, each with etcd (fsync on), API server, controller manager, scheduler, kwok for kubelets, Ready Nodes, the
// worker's CRDs, and Stages that report Pods. A plane takes four seconds and half a GiB.
//
// # Pods
//
// A main container's image name selects a fault:
//
//	/fail-pull   never runs: ErrImagePull, then ImagePullBackOff
//	/crash       exits with 1 after Delays.Exit, repeatedly (restartPolicy permitting)
//	/exit0       exits with 0 after Delays.Exit
//	/no-resize   its node reports no resources
//
// Rules:
//
//   - A scheduled Pod is Ready after Delays.Start. Init containers complete; sidecars run.
//   - A changed image terminates the container; it is unready. After Delays.Pull it runs with a new imageID and containerID, restartCount+1
//     and the old run in lastState.
//   - Resizes take 50 ms, sidecars excepted. ResizeAnnotation makes the node report Deferred or Infeasible.
//   - RestartAnnotation ends the first container of a running Pod.
//   - A deleted Pod's containers terminate, its phase becomes final, then it goes, unless a finalizer keeps it.
//   - This process serves exec, logs and port-forward (kubelet.go). Commands run here and outlive their caller's connection. A Pod's port
//     is this machine's. A log is a file (ContainerLogEnv).
//   - Only on kind: probes, readiness gates, node leases, back-off for an image that ran before, normalised image names.
//
// # Lifetime
//
//   - A set ends with the process that called Up, even by SIGKILL; because a guard sees its pipe close, kills all processes, adopted ones
//     (Set.Adopt) included, and removes the directory: TestNothingOutlivesItsProcess.
//   - If the guard dies too, the next Up removes directory and processes (Linux only): TestNextUpRemovesWhatWasLeft.
//   - A component that exits is restarted.
//   - Only API server and kubelets have ports. This process binds the API server's with SO_REUSEPORT, without listening; because no other
//     may take it while that is stopped: TestReservedPortIsTakenForOthers.
//   - Binaries come from Options.BinDir, else the machine's cache, else the release sites within three seconds, else a build of ./modules,
//     which takes minutes.
//
// The design's kwokctl is not used; because it starts daemons, on ports that may be taken, and freezes no single component.
package plane
