// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Summary is a run in numbers.
type Summary struct {
	Claims  int `json:"claims"`
	Served  int `json:"served"`
	Refused int `json:"refused"`
	Lost    int `json:"lost"`
	Waiting int `json:"waiting"`
	// ServedAtOnce counts the claims that found an idle Pod.
	ServedAtOnce   int            `json:"servedAtOnce"`
	WaitedP50      time.Duration  `json:"waitedP50Nanos"`
	WaitedP99      time.Duration  `json:"waitedP99Nanos"`
	WaitedMost     time.Duration  `json:"waitedMostNanos"`
	RunningHours   float64        `json:"podHoursRunning"`
	IdleHours      float64        `json:"podHoursIdle"`
	OtherHours     float64        `json:"podHoursBetween"`
	Peak           int32          `json:"mostReplicas"`
	Grew           int            `json:"grew"`
	Shrank         int            `json:"shrank"`
	Kept           int            `json:"markedPodsClaimed"`
	RefusedReasons map[string]int `json:"refusedByReason"`
	Reasons        map[string]int `json:"decidedByReason"`
}

// Summarize sums up a run.
func (r *Run) Summarize() Summary {
	s := Summary{Claims: r.Claims, Waiting: r.Waiting, Reasons: map[string]int{}, RefusedReasons: maps.Clone(r.Refused)}
	var waits []time.Duration
	for i := range r.Pools {
		p := &r.Pools[i]
		waits = append(waits, p.Waits...)
		s.Lost += p.Lost
		for reason, n := range p.Refused {
			s.RefusedReasons[reason] += n
		}
		for reason, n := range p.Reasons {
			s.Reasons[reason] += n
		}
		s.RunningHours += p.PodTime[running].Hours()
		s.IdleHours += p.PodTime[idle].Hours()
		s.OtherHours += (p.PodTime[starting] + p.PodTime[stopping]).Hours()
	}
	for _, n := range s.RefusedReasons {
		s.Refused += n
	}
	for _, p := range r.Total("") {
		s.Peak = max(s.Peak, p.Replicas)
	}
	for _, e := range r.Events {
		switch e.Kind {
		case Grew:
			s.Grew++
		case Shrank:
			s.Shrank++
		case Kept:
			s.Kept++
		}
	}
	slices.Sort(waits)
	s.Served = len(waits)
	s.ServedAtOnce, _ = slices.BinarySearch(waits, 1)
	s.WaitedP50, s.WaitedP99, s.WaitedMost = quantile(waits, 0.5), quantile(waits, 0.99), quantile(waits, 1)
	return s
}

// quantile returns a quantile of sorted times; 0 without any.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(time.Millisecond)
}

// WriteTable renders runs side by side, one column each.
func WriteTable(out io.Writer, names []string, summaries []Summary) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	row := func(name string, cell func(s *Summary) string) {
		cells := []string{name}
		for i := range summaries {
			cells = append(cells, cell(&summaries[i]))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t")+"\t")
	}
	share := func(n, of int) string {
		if of == 0 {
			return "-"
		}
		return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(of))
	}
	fmt.Fprintln(t, strings.Join(append([]string{""}, names...), "\t")+"\t")
	row("claims", func(s *Summary) string { return fmt.Sprint(s.Claims) })
	row("served at once", func(s *Summary) string { return share(s.ServedAtOnce, s.Claims) })
	row("served after waiting", func(s *Summary) string { return share(s.Served-s.ServedAtOnce, s.Claims) })
	row("refused", func(s *Summary) string { return share(s.Refused, s.Claims) })
	row("waiting at the end", func(s *Summary) string { return fmt.Sprint(s.Waiting) })
	row("lost with their Pods", func(s *Summary) string { return fmt.Sprint(s.Lost) })
	row("waited p50", func(s *Summary) string { return s.WaitedP50.String() })
	row("waited p99", func(s *Summary) string { return s.WaitedP99.String() })
	row("waited most", func(s *Summary) string { return s.WaitedMost.String() })
	row("Pod-hours running", func(s *Summary) string { return fmt.Sprintf("%.1f", s.RunningHours) })
	row("Pod-hours idle", func(s *Summary) string { return fmt.Sprintf("%.1f", s.IdleHours) })
	row("Pod-hours between", func(s *Summary) string { return fmt.Sprintf("%.1f", s.OtherHours) })
	row("most replicas", func(s *Summary) string { return fmt.Sprint(s.Peak) })
	row("grew", func(s *Summary) string { return fmt.Sprint(s.Grew) })
	row("shrank", func(s *Summary) string { return fmt.Sprint(s.Shrank) })
	row("marked Pods claimed", func(s *Summary) string { return fmt.Sprint(s.Kept) })
	counts := func(title string, of func(s *Summary) map[string]int) {
		all := map[string]bool{}
		for i := range summaries {
			for reason := range of(&summaries[i]) {
				all[reason] = true
			}
		}
		for _, reason := range slices.Sorted(maps.Keys(all)) {
			row(title+" "+reason, func(s *Summary) string { return fmt.Sprint(of(s)[reason]) })
		}
	}
	counts("refused", func(s *Summary) map[string]int { return s.RefusedReasons })
	counts("decided", func(s *Summary) map[string]int { return s.Reasons })
	return t.Flush()
}
