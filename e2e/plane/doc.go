// SPDX-License-Identifier: Apache-2.0

// Package plane runs real Kubernetes control planes on one machine, for tests, the demo and development.
//
// In goes a list of names. Out comes one plane for each: etcd (fsync on), kube-apiserver, kube-controller-manager,
// kube-scheduler, and kwok instead of kubelets, with Ready Nodes, the CRDs of Atoll's worker, and Stages of this package that
// report Pods as a kubelet does. A plane takes four seconds and half a GiB.
//
//	set, err := plane.Up(ctx, plane.Options{}, "east", "west")
//	defer set.Down(ctx)
//	path, err := set.Plane("east").ServiceAccountKubeconfig(ctx, "atoll-system", "atoll-worker")
//
// # Pods
//
// A scheduled Pod is Running and Ready after Delays.Start. When spec.containers[].image changes, the container is terminated
// and reported unready. After Delays.Pull it runs with the new image and imageID, a new containerID, restartCount+1 and the old
// run in lastState. A container's image name selects a fault:
//
//	/fail-pull   never runs: waiting in ErrImagePull, then ImagePullBackOff
//	/crash       exits with 1 after Delays.Exit, repeatedly (restartPolicy permitting)
//	/exit0       exits with 0 after Delays.Exit
//
//	/no-resize   cannot be resized: its node reports no resources
//
// Requests and limits changed in place take effect after 50 ms. ResizeAnnotation makes the node report Deferred or Infeasible
// until it is removed. Sidecars are not resized.
//
// RestartAnnotation ends the first container of a running Pod, which restarts if the Pod's policy says so. A deleted Pod first
// has its containers terminated and its phase made final; then it is deleted without grace. A finalizer keeps the object until
// it is removed. Init containers complete; sidecars (restartable ones) run. Fault names apply to main containers only.
//
// # Reaching Pods
//
// Exec, logs and port-forward work through the API server; this process serves them instead of kubelets (kubelet.go). A command
// runs on this machine, with a terminal if requested, and keeps running after its caller disconnects. A port of a Pod is the
// same port of this machine's loopback address. A container's log is a file; commands executed in the container find it in the
// environment variable ContainerLogEnv.
//
// Not imitated: probes, readiness gates, node leases, a kubelet's back-off for an image that the Pod ran before, and the
// normalisation of image names by a container runtime (status shows the name as in the spec). These differ on kind, which runs
// the same suites.
//
// # Lifetime
//
// A set ends with the process that called Up, however that process ends; held by TestNothingOutlivesItsProcess. All processes
// of a set, adopted ones (Set.Adopt) included, are one process group. A guard (a shell outside that group) holds the read end
// of a pipe; only the caller holds the write end. When the caller exits, even by SIGKILL, the kernel closes the pipe; the guard
// kills the group and removes the set's directory. If the guard is killed too, the next Up finds the directory by its free
// lock, kills the set's remaining processes (found by their environment in /proc, so on Linux only) and removes it; held by
// TestNextUpRemovesWhatWasLeft.
//
// A component that exits is restarted, as a kubelet does with static Pods.
//
// # Ports
//
// The kubelets' port is this process's own. etcd listens on Unix sockets in the plane's directory. The only other port is the
// API server's: this process binds it with SO_REUSEPORT, without listening, for the life of the plane, and the API server
// shares it. So no other process can take it, even while a test has stopped the API server; held by
// TestReservedPortIsTakenForOthers.
//
// # Binaries
//
// Binaries come from Options.BinDir, else from the cache, else from the release sites if these respond within three seconds,
// else from a build of the modules in ./modules, whose go.mod files pin every version. The first build takes minutes and shows
// its progress. All processes of the machine share the cache.
//
// # Why not kwokctl
//
// The design uses kwokctl's binary runtime. Its processes are daemons, which would break the guarantee under Lifetime. It picks
// ports that may be taken before they are used, and it cannot stop or freeze a single component. So this package starts the
// five processes itself; that takes as long.
package plane
