// SPDX-License-Identifier: Apache-2.0

// Package await lets callers wait for what becomes of a sandbox, and keeps two of them from wanting opposite things of it.
//
// In go sandbox ids and word that something about one has changed; out comes a Task for each caller: ready, pause or resume.
//
// # One action a sandbox
//
// A sandbox has a hook, which holds one action at a time. Tasks of the same action share it; a task of another one is refused
// with a *ConflictError. Pause and resume guard a change that their caller is about to make, so their tasks have the hook
// from when they are made. Ready guards nothing: its task takes the hook only while it waits.
//
// A hook is let go of when the last of its tasks is released: by the end of its Wait, whether that is an answer, an error, a
// caller who left or a panic, or by Release for a task that never came to wait. Release may be called any number of times.
//
// # Waiting
//
// Nothing polls. Wait asks its question, and asks it again whenever Changed was called for the sandbox; what changed while it
// was asked is not missed, because it listens before it asks. When its time is up it asks once more after a live read: what
// is in memory may lag behind the API server, and a wait that gives up is the last to notice.
//
// # Memory (I10)
//
// There is one hook a sandbox that is waited for, and nothing else: it goes with its last task.
package await
