// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package powercut tests which file contents a power cut can leave.
//
// In goes a Case: work in a directory, and a check of the directory's required contents. Run starts the test's binary again and
// traces its system calls (ptrace) during the work; so all writes are covered, even those of a library like bbolt, and no code
// needs a seam. Each call updates a model of a disk, which separates synced from unsynced changes. Then the check runs on
// directories that a cut could have left, at every point of the work.
//
// # The disk
//
//   - fsync and fdatasync make that file's earlier writes durable, and nothing else.
//   - fsync of a directory makes its created, renamed and removed names durable. A rename is atomic, and belongs to the
//     directory of the new name. A synced file without a synced name is lost.
//   - Unsynced changes may be lost or kept independently, in any order. Of a write, a first part of whole sectors may be kept,
//     or only the allocated space.
//
// This is less than Linux's journaling file systems promise, and equals POSIX.
//
// # States checked
//
// At each point: all unsynced changes lost; all kept; each change alone lost, or alone kept; names without content; content
// without names; and some random states, the same in every run. With Restart the work is also killed after each change of a
// name, restarted on the unsynced state, and cut then.
//
// At the end the model is compared with the real directory, so an unknown call fails the test.
package powercut
