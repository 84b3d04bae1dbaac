// SPDX-License-Identifier: Apache-2.0

// Package watch sends changes of sandboxes to those who watch them: a hub for all clusters, a worker for its own.
//
// In go watches, and feeds of clusters (Source); out come events, each with the mark after which a later watch can go on.
//
//	watch.go    the Service, its bounds, and one watch
//	limits.go   the bounds of watches, as flags
//	topic.go    the copy of what the watches of one Scope share
//	member.go   a cluster of a copy: whether it is heard, how old its sandboxes are
//	follow.go   the feed of one cluster into a copy
//	metrics.go  how many watches there are, what they are sent, how they end
//
// # Copies
//
//   - Watches of one Scope share a topic: a copy of the sandboxes in it, and one feed from each cluster. It exists while there are
//     watches, and for a minute longer, so that a watch that broke off goes on.
//   - Each change has a revision. A copy keeps the latest state of a sandbox with the revision of its last change, not the changes;
//     a watch is a revision that it has reached. So no event is queued, however slow a watch is (I10).
//   - A copy keeps the last records of ended sandboxes. A watch that is behind one that was dropped has missed it: EXPIRED. It is compared
//     before the changes that follow are sent; because these move the watch past what it has missed:
//     TestI14AWatchThatMissedAnEndDuringABookmark.
//   - A mark names its copy. A mark of another process, or of a copy that is gone, is EXPIRED too: the caller watches anew.
//
// # Clusters that are away (I5)
//
// A feed that breaks changes nothing in the copy: its cluster is named in a BOOKMARK, and its sandboxes stay as they were. A new
// feed begins with all that is there; what is not in that has ended meanwhile. A cluster that was forgotten takes its sandboxes
// with it. What its feed still tells is ignored; because it would bring them back: TestAForgottenClusterStaysForgotten.
//
// A watch neither names nor waits for clusters that its caller may not see (Request.SeesCluster).
//
// Events of sandboxes that are as last heard have a staleAge, as in lists. A cluster that was away when a copy began is in it as the
// hub last knew it, until its feed says how it is: TestAWatchOfAClusterThatIsAwayBegins. What was told before is not told again: the
// BOOKMARK is the note.
//
// # Bounds (I14)
//
// Watches are bounded in total, by team and by key; copies in number, and in bytes for each cluster. A watch whose caller does not
// take an event in time ends with DEADLINE.
package watch
