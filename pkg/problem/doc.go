// SPDX-License-Identifier: Apache-2.0

// Package problem is the one vocabulary of errors between client, hub and worker.
//
// An *Error goes in where something is refused; a gRPC status with ErrorInfo, BadRequest and RetryInfo details comes out on
// the wire, and the same *Error comes back from FromError on the other side. Over REST it is an
// application/problem+json document (RFC 9457).
package problem
