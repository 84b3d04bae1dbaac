// SPDX-License-Identifier: Apache-2.0

// Package hooks runs the steps between a ready container and a running sandbox: readiness checks (package runtimes), then post-start hooks
// (package hook).
//
// In: the pool reconciler's Jobs for starting Pods. Out: the state of each job. When a job is done, the reconciler writes on the Pod that
// the sandbox runs, before the sandbox is returned. It keeps I13 for commands and requests.
//
//	job.go     a Pod into a Job (pure)
//	runner.go  jobs under way
//	try.go     one try of a step
//	exec.go    a command in a container
//	secret.go  values in requests
//
// # Rules
//
//   - Hooks run at least once; because a new leader or container starts with the first one: TestAnotherContainerBeginsAnew. A try that
//     timed out may overlap its retry.
//   - A failed step is retried after 200 ms to 5 s: a hook as often as it specifies, a check until the startup timeout.
//   - A hook that failed permanently ends the sandbox with PostStartHookFailed: TestAHookIsRetriedAndThenHasFailed.
//   - Messages contain a hook's index and name, but no arguments, header or body; because these hold secrets: TestMessagesHoldNoSecret.
//   - A starting Pod has at most one job; responses and output are not kept (I10).
//
// # Secrets
//
//   - A header or body may refer to a Secret in the sandbox's namespace. Its value is read for each try, for the request alone:
//     TestAValueOfASecretIsInTheRequestAlone.
//   - A Secret without the label agentbox.navix.sh/hook-secret=true counts as absent, and so does one whose annotation
//     agentbox.navix.sh/hook-secret-teams does not list the team; because its owner must agree that callers read it:
//     TestWhichSecretsHooksMayHave, TestSecretsOfAnAPIServer.
//   - Reading them is off by default (--hook-secrets, chart value hookSecrets).
//   - An unusable Secret ends the sandbox with HookSecretUnavailable.
//
// # Tenancy (I13)
//
// A late hook must not reach the Pod's next tenant: TestI13ALateHookLeavesTheNextTenantAlone.
//
//   - Each try begins with a live read that matches the job's uid, sandbox, phase and container, under the lease:
//     TestNothingIsTriedInDoubt.
//   - A release ends the job. A command that runs ends with its container.
//   - A command is registered before the read, and not sent if an end is being written. If its outcome is unknown, its Pod is replaced
//     (package sandboxes): TestI13ACommandIsNotedUntilItsEndIsKnown.
//   - A request goes directly to the Pod's own address, which network policies must allow, within its timeout, without redirects or
//     proxies; because the API server's proxy needs a right to every Pod: TestARequestGoesNowhereElse.
//   - A Pod on its node's network gets no request; because callers must not choose what the worker reaches.
package hooks
