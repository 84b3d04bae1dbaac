// SPDX-License-Identifier: Apache-2.0

// Package inventory is the index over this cluster's Pods that claims and sandboxes share, and its one lock.
package inventory
