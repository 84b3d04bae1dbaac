// SPDX-License-Identifier: Apache-2.0

// Package quiet counts Atoll's writes to an API server at rest.
//
// In: a plane with an audit log and the stack on it. Out: a period's writes, by writer and object. The test fails on any; the bench counts
// with 1000 Envs and 10,000 Pods. Lease renewals and other user agents do not count.
package quiet
