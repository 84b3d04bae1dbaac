// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"slices"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
)

// BenchmarkDispatch is what crossing a replica adds to a dispatch: compare p50-µs of across with that of here.
func BenchmarkDispatch(b *testing.B) {
	f := newFederation(b, "a", "b")
	f.attach("east", "a", 1, 3).responds(granted)
	f.replicas["b"].ready(f, "east", "a", 3)
	for name, at := range map[string]string{"here": "a", "across": "b"} {
		for kind, key := range map[string]string{"keyed": "k", "unkeyed": ""} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					began := time.Now()
					_, err := f.replicas[at].Dispatch(b.Context(), "east", claim(key))
					must.Succeed(b, err)
					took = append(took, time.Since(began))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			})
		}
	}
}
