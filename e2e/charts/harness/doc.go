// SPDX-License-Identifier: Apache-2.0

// Package harness runs helm the way people do, against the charts of this checkout.
//
// In go a chart's name and values, written in YAML as in a values file; out come the rendered objects, or a release in a
// cluster: installed, upgraded, rolled back, uninstalled. helm is the one that tools/go.mod pins, and keeps its caches and
// plugins in a folder of its own, so that nothing of the user's helm changes a result.
package harness
