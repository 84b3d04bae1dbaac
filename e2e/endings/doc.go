// SPDX-License-Identifier: Apache-2.0

// Package endings tests that every ended sandbox has one record, however it ended and whichever program was killed:
// TestEveryEndingIsRecordedOnce. On a plane: a hub and two replicas of a worker, each with a disk.
package endings
