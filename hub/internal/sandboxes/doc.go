// SPDX-License-Identifier: Apache-2.0

// Package sandboxes forwards calls about sandboxes to their clusters: get, list, watch, change, release, reach, refresh.
//
// In: calls of a Principal. Out: sandboxes, pages, events, tunnels, typed errors.
//
//   - A caller sees its own sandboxes, and never learns of others: TestGetAndRelease, TestListMergesInOrder,
//     TestOnlyTheOwnerReachesASandbox.
//   - A cluster that a caller may not see is as one that is not there: it is not asked, nor named while it is away; because that tells what
//     others have: TestPartsOfOtherClustersAreNotShown, TestAWatchShowsWhatItsCallerMaySee.
//   - A decision is shown for the Env of its claim alone; because which candidates a caller may see depends on that: TestExplain.
//   - A release of a sandbox whose cluster is away is checked by what the hub last saw of it, or by its claim's record:
//     TestAReleaseReachesAClusterThatIsAway.
//   - A terminal record in the ledger is returned without its cluster; because that may be away: TestAnEndedSandboxIsTouchedInVain.
//   - A list merges all clusters' pages, and may be short. A cluster silent for 3 s is named and delays no other (I7):
//     TestListMergesInOrder, TestEndedSandboxesOfAllClustersArePaged. Its live sandboxes are listed as last known:
//     TestSandboxesOfADeadWorkerAreListedAsLastKnown.
//   - A worker is named too if its page token does not advance; because callers would loop: TestAPageThatDoesNotGoOnIsNone.
//   - A page is in its request's order, and its token is good for that request alone: TestListsInOtherOrders.
//   - A watch shows what a list would: TestAWatchShowsWhatItsCallerMaySee. Package watch has what it costs.
//   - A refresh asks each cluster for its own members, and names it by certificate (I12): TestRefreshEnv.
package sandboxes
