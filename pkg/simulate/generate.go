// SPDX-License-Identifier: Apache-2.0

package simulate

// The pictures and tables of docs/autoscaling.md.
//go:generate go run ./pictures ../../docs
