// SPDX-License-Identifier: Apache-2.0

// Package problem defines the errors between client, hub and worker.
//
// In: an *Error. Out: a gRPC status with ErrorInfo, BadRequest and RetryInfo, or over REST application/problem+json (RFC 9457). FromError
// restores it.
package problem
