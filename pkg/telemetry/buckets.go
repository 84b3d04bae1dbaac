// SPDX-License-Identifier: Apache-2.0

package telemetry

// Upper bounds of histogram buckets, in seconds.
var (
	// CallSeconds are for calls, from a response from memory to the start of a sandbox.
	CallSeconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
	// WriteSeconds are for one durable write, to a local disk or to etcd.
	WriteSeconds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
)
