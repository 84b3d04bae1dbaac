// SPDX-License-Identifier: Apache-2.0

// Package harness runs helm as users do, against the charts of this checkout.
//
// In go a chart's name and values, as YAML of a values file. Out come the rendered objects, or a release in a cluster:
// installed, upgraded, rolled back, uninstalled. tools/go.mod pins helm. helm keeps its caches and plugins in a folder of its
// own, so the user's helm does not affect a result.
package harness
