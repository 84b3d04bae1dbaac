// SPDX-License-Identifier: Apache-2.0

// Package history checks the responses that callers got against the promises of claims. Its callers are real processes or
// simulated ones.
//
// In go calls with the times when their callers saw them begin and end. Out come the calls that no order explains.
//
// A History covers claim keys (I2). Each key is a register that takes one sandbox and then ends. porcupine decides whether the
// responses are linearizable:
//
//	returned a sandbox   the key has not ended, and never returned another sandbox
//	returned a record    the key has ended, and not with another sandbox than the returned one
//	ended                by a cancel, or a release of its sandbox, once that has begun: nothing else ends a sandbox
//
// A call without a known outcome may have taken effect at any time after it began, or never. A create without a known outcome
// binds no one: a sandbox that no caller was given may be replaced by another one.
//
// Holdings cover Pods (I1), with a key or without: a Pod that was returned and not given back is not returned as another
// sandbox. They also know which sandboxes must still run at the end (I6).
package history
