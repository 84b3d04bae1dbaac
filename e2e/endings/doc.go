// SPDX-License-Identifier: Apache-2.0

// Package endings tests that every ended sandbox has exactly one record, however it ended and whichever program was killed
// meanwhile; held by TestEveryEndingIsRecordedOnce. The programs run as users run them: on a plane, a hub and two replicas of
// one cluster's worker, each with a disk of its own.
package endings
