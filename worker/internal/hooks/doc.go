// SPDX-License-Identifier: Apache-2.0

// Package hooks does what has to happen in a Pod after its container is ready and before its sandbox runs: the readiness
// checks that no kubelet makes (package runtimes), then the claim's post-start hooks (package hook).
//
// The pool reconciler hands in Jobs for starting Pods, and asks how far they are (Follow). Nothing here is written on a Pod:
// when a job is done the reconciler turns the sandbox from starting to running, and that write is the mark that the hooks
// are done, which is durable before anybody is answered a running sandbox. A claim with hooks never skips starting.
//
//	job.go     a Pod and its pool into a Job (pure)
//	runner.go  jobs under way, and what became of them
//	try.go     one try of one step: is this still the Pod, then exec, request or connection
//	exec.go    a command in a container, through the API server
//
// # At least once
//
// A leader that ends between a hook and the write leaves the sandbox starting, and the next one begins with the first hook.
// So it is with a container that is replaced while the sandbox starts: a job belongs to one container. Hooks have to bear
// that. A try that ran into its timeout may go on in the container after its retry has begun.
//
// # Failure
//
// A step that fails is tried again with a back-off from 200 ms to 5 s: a hook as often as it says, a check for as long as the
// sandbox may start. A hook that has failed for good ends the sandbox as Failed with PostStartHookFailed; the startup timeout
// is the reconciler's and goes on meanwhile. Messages name a hook by its place and name, and quote no part of a command
// after the program, no header and no body.
//
// # Whose Pod it is (I13)
//
// A hook that is late must not reach the Pod's next tenant. So each try begins with a live read: the Pod must be the job's,
// by uid, sandbox, phase and container, and the lease must be held. A release ends the job as soon as its event is here, and a
// command with its container. What is left is a command that the API server holds on to for longer than a Pod takes to be
// reset: so a claim's command is noted before the look, none is sent once an end is being written, and a Pod of whose
// commands not all is known is not reset but replaced (sandboxes.BeginExec). A request goes to the Pod's address within its time.
//
// # Where a request goes
//
// Always to the Pod's own address, straight from the worker, which needs a way there (a network policy of the worker must
// let it out): a request through the API server's proxy would need a right to reach every Pod of the cluster. Redirects
// are not followed, proxies of the environment are not used, and a Pod on its node's network, whose address is the node's,
// gets no request at all: a caller must not be able to choose what the worker talks to.
//
// # Bounds (I10)
//
// There is one job a starting Pod at most, so jobs are bounded by Pods; of answers and output nothing is kept.
package hooks
