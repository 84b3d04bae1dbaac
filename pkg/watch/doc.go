// SPDX-License-Identifier: Apache-2.0

// Package watch sends changes of sandboxes to watching callers: a hub for all clusters, a worker for its own.
//
// In: watches, and feeds of clusters (Source). Out: events, each with the mark after which a later watch can continue.
//
//	watch.go    the Service, its bounds, and a single watch
//	limits.go   the bounds of watches, as flags
//	topic.go    the copy that the watches of one Scope share
//	member.go   a cluster in a copy: whether it is heard from, how old its sandboxes are
//	follow.go   the feed of one cluster into a copy
//	metrics.go  the number of watches, what they are sent, how they end
//
// # Copies
//
//   - Watches of one Scope share a topic: a copy of the sandboxes in the Scope, and one feed from each cluster. It exists while there are
//     watches and for one more minute, so that a watch that broke off can continue.
//   - Each change has a revision. A copy holds the latest state of a sandbox and the revision of its last change, not the changes. A watch
//     is the revision that it has reached. So no event is queued, however slow a watch is (I10).
//   - A copy keeps the last records of ended sandboxes. A watch that is behind a record that was dropped has missed an end, and gets
//     EXPIRED. This is checked before later changes are sent; because these move the watch beyond what it has missed:
//     TestI14AWatchThatMissedAnEndDuringABookmark.
//   - A mark names its copy. A mark from another process, or from a copy that is gone, is EXPIRED too: the caller must watch anew.
//
// # Clusters that are away (I5)
//
// A feed that breaks changes nothing in the copy: its cluster is named in a BOOKMARK, and its sandboxes stay as they were. A new feed
// starts with all existing sandboxes; those that it does not contain have ended in the meantime. A forgotten cluster's sandboxes are
// removed with it. What its feed still sends is ignored; because it would bring them back: TestAForgottenClusterStaysForgotten.
//
// A watch neither names nor waits for clusters that its caller may not see (Request.SeesCluster).
//
// Events of sandboxes that may be out of date have a staleAge, as in lists. If a cluster is away when a copy is created, the copy contains
// its sandboxes as the hub last knew them, until its feed starts: TestAWatchOfAClusterThatIsAwayBegins. Events that were sent before are
// not sent again; the BOOKMARK indicates that their sandboxes are stale.
//
// # Bounds (I14)
//
// Watches are bounded in total, per team and per key; copies are bounded in number, and in bytes per cluster. A watch whose caller does not
// take an event in time ends with DEADLINE.
package watch
