// SPDX-License-Identifier: Apache-2.0

// Package history checks responses to callers against the promises of claims.
//
// In: calls, and when callers saw them begin and end. Out: calls that no order explains.
//
// A History covers claim keys (I2). Each is a register that takes one sandbox, then ends; porcupine checks linearizability:
//
//	returned a sandbox   the key has not ended, and never returned another
//	returned a record    the key has ended, and with no other sandbox than the returned one
//	ended                only by a cancel, or a release of its sandbox, that has begun
//
// A call without a known outcome took effect at any time after it began, or never; a sandbox that no caller was given may be replaced.
//
// Holdings cover Pods (I1), with or without a key: a Pod not given back is no other sandbox. They know which sandboxes must run at the end
// (I6).
package history
