// SPDX-License-Identifier: Apache-2.0

// Package lastknown keeps what each cluster last said about its live sandboxes, so that lists show them while the cluster does not
// respond.
//
// In: responses of workers as they pass, and a list of each cluster at intervals. Out: a cluster's sandboxes, each with its age.
//
//   - It is for display. No decision about a claim or a sandbox reads it: a sandbox here may have ended since.
//   - A hub that was restarted knows what workers have said since.
//   - A complete list replaces what is older. A list that fails, or that is cut short, removes nothing (I5):
//     TestWhatAListLeavesOut.
//   - Each cluster has a share of its own, in sandboxes and bytes (I10, I14), and its sandboxes only (I15): TestI14SharesAreBounded.
//   - A watch has a copy of its own (package watch): it exists only while there are watches, has one caller's sandboxes, and is fed by
//     changes. A cluster that was away when that began is in it as it is here.
//   - Lists are the rarer, the more sandboxes a cluster has; because each is read whole. One at a time runs for a cluster, and
//     delays no other (I7). Lists of many clusters are spread over time; because a thousand at once would delay claims:
//     TestListsAreSpread.
package lastknown
