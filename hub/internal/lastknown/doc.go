// SPDX-License-Identifier: Apache-2.0

// Package lastknown keeps each cluster's last reported live sandboxes, so that lists can show them while the cluster does not respond.
//
// In: responses of workers that pass through, and a list of each cluster at intervals. Out: a cluster's sandboxes, each with its age.
//
//   - It is only for display. No decision about a claim or a sandbox uses it: a sandbox here may have ended since.
//   - After a restart, a hub knows only what workers have reported since.
//   - A complete list replaces older entries. A list that fails, or is truncated, removes nothing (I5): TestWhatAListLeavesOut.
//   - Each cluster has its own share, bounded in sandboxes and bytes (I10, I14), which holds only its own sandboxes (I15):
//     TestI14SharesAreBounded.
//   - A watch has its own copy (package watch): the copy exists only while there are watches, has one caller's sandboxes, and is updated by
//     changes. The sandboxes of a cluster that was away when the watch began come from here.
//   - The more sandboxes a cluster has, the less often it is listed; because each list is complete. At most one list runs for a cluster,
//     and delays no other cluster (I7). Lists of many clusters are spread over time; because a thousand at once would delay claims:
//     TestListsAreSpread.
package lastknown
