// SPDX-License-Identifier: Apache-2.0

// Package sandboxes forwards calls about sandboxes to the clusters that run them: get, list, change, release, reach, refresh.
//
// In go calls of a Principal; out come sandboxes, pages, tunnels and typed errors. Claim keys belong to package claims.
//
//   - A caller sees its own sandboxes only, and never learns that others exist: TestGetAndRelease, TestListMergesInOrder,
//     TestOnlyTheOwnerReachesASandbox.
//   - A sandbox whose terminal record is in the ledger is returned without asking its cluster; because that may be away:
//     TestAnEndedSandboxIsTouchedInVain.
//   - A list asks every cluster and merges the pages, and may return a short page. A cluster that is silent for 3 s is named in
//     the response and delays no other (I7): TestListMergesInOrder, TestEndedSandboxesOfAllClustersArePaged.
//   - A worker whose page token does not advance is named as missing; because its callers would loop:
//     TestAPageThatDoesNotGoOnIsNone.
//   - A refresh asks each cluster for its own members only, and the result carries the name in the certificate (I12):
//     TestRefreshEnv.
package sandboxes
