// SPDX-License-Identifier: Apache-2.0

// Package plane runs real Kubernetes control planes on one machine, for tests, the demo and development.
//
// In goes a list of names; out comes one plane for each: etcd (fsync on), kube-apiserver, kube-controller-manager,
// kube-scheduler, and kwok in the place of the kubelets, with Nodes that are Ready, the CRDs of Atoll's worker, and
// Stages of our own that report Pods the way a kubelet does. A plane takes four seconds and half a GiB.
//
//	set, err := plane.Up(ctx, plane.Options{}, "east", "west")
//	defer set.Down(ctx)
//	path, err := set.Plane("east").ServiceAccountKubeconfig(ctx, "atoll-system", "atoll-worker")
//
// # What a Pod does
//
// A scheduled Pod is Running and Ready after Delays.Start. When spec.containers[].image changes, the container is
// terminated and reported unready; after Delays.Pull it runs again with the new image and imageID, a containerID never
// seen before, restartCount+1 and the old run in lastState. What a container's image name contains decides its fate:
//
//	/fail-pull   never runs: waiting in ErrImagePull, then ImagePullBackOff
//	/crash       exits with 1 after Delays.Exit, over and over (restartPolicy permitting)
//	/exit0       exits with 0 after Delays.Exit
//
//	/no-resize   cannot be resized: its node reports no resources
//
// Requests and limits that are changed in place are given after 50 ms; ResizeAnnotation makes the node say Deferred or
// Infeasible instead, until it is gone. Sidecars are not resized.
//
// The annotation RestartAnnotation makes the first container of a running Pod end on demand, and restart if the Pod's
// policy says so. A deleted Pod has its containers terminated and its phase made final first, and is then deleted with
// no grace; as with a kubelet, a finalizer keeps the object until it is removed. Init containers complete, sidecars
// (restartable ones) run; fault names are looked for in main containers only.
//
// # Reaching Pods
//
// Exec, logs and port-forward work through the API server, answered by this process in the kubelets' place (kubelet.go). A
// command runs on this machine, with a terminal if that is asked for, and goes on when its caller is gone. A port of a Pod
// is the same port of this machine's loopback address. A container's log is a file that commands executed in it find in
// their environment as ContainerLogEnv.
//
// What is not imitated: probes, readiness gates, node leases, the back-off of a kubelet for an image that the Pod ran
// before, and the normalisation of image names by a container runtime (status shows the name as the spec has it). These
// differ on kind, which runs the same suites.
//
// # Lifetime
//
// Nothing outlives the process that called Up, however it ends. Every process of a set, adopted ones (Set.Adopt) among
// them, belongs to one process group, and a guard (a shell outside that group) holds the reading end of a pipe whose
// writing end only the caller has. When the caller is gone — exit, Ctrl-C, SIGKILL — the kernel closes the pipe, and the
// guard kills the group and removes the set's directory. Should the guard be killed along with it, the next Up finds the
// directory whose lock nobody holds, ends what still runs of the set (told by its environment, through /proc, so on
// Linux only) and removes it.
//
// A component that ends by itself is started again, as a kubelet does with static Pods.
//
// # Ports
//
// The kubelets' port is this process' own. etcd listens on Unix sockets in the plane's directory. The API server's port is the only one beside it; it is bound by this
// process with SO_REUSEPORT, without listening, for as long as the plane exists, and the API server shares it. So it
// can be taken neither by another set, nor while a test has the API server stopped.
//
// # Binaries
//
// From Options.BinDir; else from the cache; else downloaded, if the release sites answer within three seconds; else
// built from the modules in ./modules, whose go.mod files pin every version. The first build takes minutes, shows its
// progress, and is shared through the cache by all processes of the machine.
//
// # Where it departs from the design's mechanism
//
// The design drives planes by kwokctl's binary runtime. Its processes are daemons with a life of their own, which is
// what the guarantee above must not have; it picks ports that may be taken by the time they are used, and offers no
// hold on a single component to stop or freeze it. The five processes are therefore started from here; it takes as long.
package plane
