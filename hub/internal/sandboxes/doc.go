// SPDX-License-Identifier: Apache-2.0

// Package sandboxes forwards calls about sandboxes to their clusters: get, list, watch, change, release, reach, refresh.
//
// In: calls of a Principal. Out: sandboxes, pages, events, tunnels, typed errors.
//
//   - A caller sees only its own sandboxes and learns nothing of others: TestGetAndRelease, TestListMergesInOrder,
//     TestOnlyTheOwnerReachesASandbox.
//   - A cluster that a caller may not see is treated as missing: it is not asked, and not named while it is away; because either would
//     reveal what others have: TestPartsOfOtherClustersAreNotShown, TestAWatchShowsWhatItsCallerMaySee.
//   - A decision is returned only for the Env of its claim; because the Env determines which candidates a caller may see: TestExplain.
//   - If a sandbox's cluster is away, its release is checked against the hub's last known state of the sandbox, or the record of its claim:
//     TestAReleaseReachesAClusterThatIsAway.
//   - A terminal record in the ledger is returned without a call to its cluster; because the cluster may be away:
//     TestAnEndedSandboxIsTouchedInVain.
//   - A list merges the pages of all clusters, and a page may be short. A cluster that is silent for 3 s is named, and delays no other
//     (I7): TestListMergesInOrder, TestEndedSandboxesOfAllClustersArePaged. Its live sandboxes are listed as last known:
//     TestSandboxesOfADeadWorkerAreListedAsLastKnown.
//   - A cluster is also named if its page token does not advance; because callers would loop: TestAPageTokenMustAdvance.
//   - A page has the order of its request, and its token is valid for that request only: TestListsInOtherOrders.
//   - A watch shows the same sandboxes as a list: TestAWatchShowsWhatItsCallerMaySee. Package watch documents its cost.
//   - A refresh asks each cluster to replace its own members, and takes the cluster's name from its certificate (I12): TestRefreshEnv.
package sandboxes
