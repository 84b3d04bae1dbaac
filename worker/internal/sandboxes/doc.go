// SPDX-License-Identifier: Apache-2.0

// Package sandboxes looks after the sandboxes on this cluster's Pods, from their claim to the record of their end.
package sandboxes
