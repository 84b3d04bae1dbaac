// SPDX-License-Identifier: Apache-2.0

// Package hooks runs the steps between a ready container and a running sandbox: the readiness checks that no kubelet makes
// (package runtimes), then the claim's post-start hooks (package hook).
//
// In: Jobs of the pool reconciler for starting Pods. Out: how far a job is (Follow). The package writes nothing on a Pod. When a
// job is done, the reconciler turns the sandbox from starting to running. That write marks the hooks as done, and is durable
// before a running sandbox is returned to any caller. A claim with hooks never skips starting. It keeps I13 for commands and
// requests.
//
//	job.go     a Pod and its pool into a Job (pure)
//	runner.go  jobs under way, and their results
//	try.go     one try of one step: check that the Pod is still the job's, then exec, request or connection
//	exec.go    a command in a container, through the API server
//	secret.go  values that a request refers to
//
// # At least once
//
// A leader that ends between a hook and the write leaves the sandbox starting, and the next leader begins with the first hook. So
// does a container that is replaced while the sandbox starts, because a job belongs to one container; held by
// TestAnotherContainerBeginsAnew. Hooks must tolerate that. A try that ran into its timeout may continue in the container after
// its retry has begun.
//
// # Failure
//
//   - A step that fails is tried again with a back-off from 200 ms to 5 s: a hook as often as it specifies, a check for as long
//     as the sandbox may start.
//   - A hook that has failed permanently ends the sandbox as Failed with PostStartHookFailed; held by
//     TestAHookIsRetriedAndThenHasFailed. The reconciler enforces the startup timeout meanwhile.
//   - Messages identify a hook by its index and name. They quote no part of a command after the program, no header and no body;
//     held by TestMessagesHoldNoSecret.
//
// # Secrets
//
// A header's value, or a body, may be a reference to a key of a Secret in the sandbox's namespace. The Secret is read for each try,
// and its value is in the request alone: in no annotation, log, error or trace; held by TestAValueOfASecretIsInTheRequestAlone.
//
//   - A caller has the value sent to a sandbox, where it can read it. So only Secrets with the label
//     agentbox.navix.sh/hook-secret=true can be referred to: their owner has agreed that callers who may claim in the namespace
//     may read them, or the teams that the annotation agentbox.navix.sh/hook-secret-teams lists.
//   - Any other Secret is the same as none; held by TestWhichSecretsHooksMayHave.
//   - It takes a right that the worker does not have by default (--hook-secrets, chart value hookSecrets).
//   - A Secret that cannot be used ends the sandbox as Failed with HookSecretUnavailable. The message names Secret and key.
//
// # Tenancy (I13)
//
// A late hook must not reach the Pod's next tenant; held by TestI13ALateHookLeavesTheNextTenantAlone.
//
//   - Each try begins with a live read. The Pod must match the job in uid, sandbox, phase and container, and the lease must be
//     held; held by TestNothingIsTriedInDoubt.
//   - A release ends the job as soon as its event arrives, and a command with its container.
//   - The API server may hold a command for longer than the reset of a Pod takes. So a claim's command is noted before the read,
//     no command is sent once an end is being written, and a Pod with a command of unknown outcome is replaced, not reset
//     (sandboxes.BeginExec); held by TestI13ACommandIsNotedUntilItsEndIsKnown.
//   - A request reaches the Pod's address within its timeout.
//
// # Where a request goes
//
// Always to the Pod's own address, directly from the worker; held by TestARequestGoesNowhereElse. A network policy of the worker
// must allow it. The API server's proxy would need the right to reach every Pod of the cluster. Redirects are not followed, and
// proxies of the environment are not used. A Pod on its node's network has the node's address and gets no request, because a
// caller must not be able to choose what the worker connects to.
//
// # Bounds (I10)
//
// Each starting Pod has at most one job, so Pods bound the jobs. Responses and output are not kept.
package hooks
