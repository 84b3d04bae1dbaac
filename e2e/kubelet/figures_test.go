// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kubelet_test

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// table is what was measured, in the order in which it was.
type table struct {
	mu   sync.Mutex
	rows []row
}

type row struct {
	what  string
	times []time.Duration
}

var figures table

// add enters times of one thing, further ones of the same name with it.
func (f *table) add(what string, times ...time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.rows {
		if f.rows[i].what == what {
			f.rows[i].times = append(f.rows[i].times, times...)
			return
		}
	}
	f.rows = append(f.rows, row{what, slices.Clone(times)})
}

func (f *table) print(w io.Writer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "measured\tn\tleast\tmedian\tmost\tms")
	for _, r := range f.rows {
		sorted := slices.Clone(r.times)
		slices.Sort(sorted)
		if n := len(sorted); n > 0 {
			fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t\n", r.what, n,
				sorted[0].Milliseconds(), sorted[n/2].Milliseconds(), sorted[n-1].Milliseconds())
		}
	}
	_ = out.Flush()
}
