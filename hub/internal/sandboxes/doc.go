// SPDX-License-Identifier: Apache-2.0

// Package sandboxes passes calls about sandboxes on to the clusters that run them: get, list, change, release, reach, refresh.
//
// In go calls of a Principal; out come sandboxes, pages, tunnels and typed errors. What a claim key needs is package claims'.
//
//   - A caller sees its own sandboxes only, and is never told that others exist: TestGetAndRelease, TestListMergesInOrder,
//     TestOnlyTheOwnerReachesASandbox.
//   - A sandbox whose terminal record the ledger has is not asked for; because its cluster may be away:
//     TestAnEndedSandboxIsTouchedInVain.
//   - A list asks every cluster and merges the pages, which may end early. A cluster that is silent for 3 s is named and delays no
//     other (I7): TestListMergesInOrder, TestEndedSandboxesOfAllClustersArePaged.
//   - A worker whose pages do not go on is named as missing; because its callers would ask for ever:
//     TestAPageThatDoesNotGoOnIsNone.
//   - A refresh asks each cluster for its own members, and what returns carries the certificate's name (I12): TestRefreshEnv.
package sandboxes
