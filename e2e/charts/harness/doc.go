// SPDX-License-Identifier: Apache-2.0

// Package harness runs helm (pinned in tools/go.mod) as users do, on this checkout's charts.
//
// In: a chart's name and values. Out: rendered objects, or a release. Caches and plugins have their own folder; so the user's helm affects
// no result.
package harness
