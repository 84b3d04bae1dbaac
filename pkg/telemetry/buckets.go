// SPDX-License-Identifier: Apache-2.0

package telemetry

// Upper bounds of histogram buckets, in seconds.
var (
	// CallSeconds are for calls, from a response from memory to the start of a sandbox.
	CallSeconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
	// WriteSeconds are for one durable write, to a local disk or to etcd.
	WriteSeconds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
	// StageSeconds are for a stage of a claim at the hub, which waits for at most one durable write.
	StageSeconds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	// PluginSeconds are for calls of plugins that are compiled in.
	PluginSeconds = []float64{.0001, .001, .01, .1, .5, 1, 2.5, 5}
	// OpenSeconds are for opening a conversation with a sandbox.
	OpenSeconds = []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20}
	// StartSeconds are for the start of a container.
	StartSeconds = []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120}
	// ReplaceSeconds are for a new Pod, from its creation to ready.
	ReplaceSeconds = []float64{.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600}
)
