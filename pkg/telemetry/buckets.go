// SPDX-License-Identifier: Apache-2.0

package telemetry

// Upper bounds of histograms' buckets, in seconds.
var (
	// CallSeconds are for what a caller waits for: an answer from memory to a sandbox that starts.
	CallSeconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
	// WriteSeconds are for one durable write, to a local disk or to etcd.
	WriteSeconds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
)
