// SPDX-License-Identifier: Apache-2.0

// Package simulate x.
package simulate
