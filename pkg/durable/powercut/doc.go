// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package powercut tests which file contents a power cut can leave.
//
// In: a Case: work in a directory, and a check of its required contents. Run traces the work's system calls (ptrace), a library's too, into
// a model of a disk. The check runs on what a cut could have left, at every point.
//
//   - fsync and fdatasync make that file's earlier writes durable, and nothing else.
//   - fsync of a directory makes its created, renamed and removed names durable. A rename is atomic, and belongs to the new name's
//     directory. A synced file without a synced name is lost.
//   - Unsynced changes are lost or kept independently; of a write, a first part of whole sectors, or only the space.
//
// POSIX promises no more.
//
// At each point: all unsynced changes lost; all kept; each alone lost, or kept; names without content; content without names; random states
// from one seed; with Restart, cuts after a kill at a change of a name and a restart. The model is compared with the directory at the end;
// so an unknown call fails.
package powercut
