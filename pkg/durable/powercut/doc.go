// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package powercut tests what a power cut leaves of the files that a piece of code writes.
//
// In goes a Case: work in a directory, and a check of what must be found there. Run starts the test's binary again and traces
// its system calls (ptrace) while it works; so everything that is written takes part, also what a library like bbolt writes,
// and no code needs a seam. What each call changes goes into a model of a disk, which keeps apart what was synced from what
// was not. Then the check looks at directories that a cut could have left, at every point of the work.
//
// # The disk
//
//   - fsync and fdatasync make durable what was written to that file before, and nothing else.
//   - fsync of a directory makes durable which names were made, renamed and removed in it. A rename is atomic, and belongs to
//     the directory of the new name. A file that was synced and whose name was not is gone.
//   - What was not synced may be lost or kept, one change without the other, in any order; of a write a first part of whole
//     sectors may be kept, or the room for it alone.
//
// That is less than Linux' journaling file systems promise, and what POSIX does.
//
// # What is looked at
//
// At each point: everything unsynced lost; all of it kept; each change alone lost, or alone kept; names without content;
// content without names; and some that chance chose, always the same. With Restart the work is also killed after each change
// of a name, begun again over what is not synced yet, and cut off then.
//
// At the end the model is compared with the real directory, so a call that it does not know fails the test.
package powercut
