// SPDX-License-Identifier: Apache-2.0

// Package environment hands the environment of a claim to the daemon of its sandbox (atoll-sandboxd), at its port, through a tunnel:
// variables, the working directory, the account, and files.
//
// In: a sandbox that has started, its claim. Out: an error, or processes that the daemon starts from then on have them, and the sandbox is
// RUNNING.
//
// # Rules
//
//   - Variables are in the body of one request, and in no error, log or store; nor are paths and contents of files: TestNoErrorHasAValue.
//   - Values of Secrets do not pass here: the sandbox's worker reads them, and gives them to the daemon, at the daemon's token.
//   - The account and the working directory are set first; because files are the account's, below the directory.
//   - The daemon's token is the one that the gateway for E2B clients derives (package sandboxd); because the first token of a
//     daemon stays.
//   - The sandbox is STARTING for other callers until it has all of them: TestPreparationEndsLast. Its worker keeps that on the Pod, so a
//     worker that starts again knows it: TestNoCallerReachesASandboxThatIsBeingPrepared.
//   - A daemon that does not respond is asked again for a while; because its container may have begun just now. One that
//     refuses is not.
package environment
