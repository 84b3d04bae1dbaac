// SPDX-License-Identifier: Apache-2.0

// Package environment passes the environment of a claim to the daemon of its sandbox (atoll-sandboxd), at the daemon's port, through a
// tunnel: variables, the working directory, the account, and files.
//
// In: a started sandbox and its claim. Out: an error; or the processes that the daemon starts from then on have the environment, and the
// sandbox is RUNNING.
//
// # Rules
//
//   - Variables are in the body of one request, and in no error, log or store. The same applies to paths and contents of files:
//     TestNoErrorHasAValue.
//   - Values of Secrets do not pass through here: the sandbox's worker reads them, and passes them to the daemon with the daemon's token.
//   - The account and the working directory are set first; because files belong to the account, and are below the directory.
//   - The daemon's token is the one that the gateway for E2B clients derives (package sandboxd); because the first token of a daemon stays.
//   - The sandbox is STARTING for other callers until its daemon has everything: TestPreparationEndsLast. Its worker records that on the
//     Pod, so that it still knows after a restart: TestNoCallerReachesASandboxThatIsBeingPrepared.
//   - A request to a daemon that does not respond is retried for a while; because its container may have just started. A refusal is not
//     retried.
package environment
