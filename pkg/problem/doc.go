// SPDX-License-Identifier: Apache-2.0

// Package problem defines the errors between client, hub and worker.
//
// In goes an *Error at the place of the refusal. Out comes a gRPC status with ErrorInfo, BadRequest and RetryInfo details;
// FromError restores the same *Error at the client. Over REST it is an application/problem+json document (RFC 9457).
package problem
