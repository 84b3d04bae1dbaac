// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// tally counts what callers met.
type tally struct {
	mu      sync.Mutex
	took    map[string][]time.Duration // from the first call to the answer
	repeats map[string]int             // answers that took more than one call
	refusal map[string]int             // what was answered instead
}

func newTally() *tally {
	return &tally{took: map[string][]time.Duration{}, repeats: map[string]int{}, refusal: map[string]int{}}
}

func (t *tally) answered(what string, again int, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took[what] = append(t.took[what], took)
	if again > 0 {
		t.repeats[what]++
	}
}

func (t *tally) refused(what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := problem.FromError(err)
	advice := "no advice"
	if e.RetryAfter > 0 {
		advice = "retry after " + e.RetryAfter.String()
	}
	t.refusal[fmt.Sprintf("%s: %s (%s)", what, e.Error(), advice)]++
}

func (t *tally) print(w io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "call\tanswered\tcalled again\tmedian\t99th\tmost\tms")
	for _, what := range slices.Sorted(maps.Keys(t.took)) {
		sorted := slices.Sorted(slices.Values(t.took[what]))
		n := len(sorted)
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\t\n", what, n, t.repeats[what],
			sorted[n/2].Milliseconds(), sorted[n*99/100].Milliseconds(), sorted[n-1].Milliseconds())
	}
	_ = out.Flush()
	for _, what := range slices.Sorted(maps.Keys(t.refusal)) {
		fmt.Fprintf(w, "%5d × %s\n", t.refusal[what], what)
	}
}

// watch asks again and again, and measures for how long there is no answer.
type watch struct {
	what string
	ask  func(context.Context) error

	mu      sync.Mutex
	last    time.Time
	longest time.Duration
	why     error // of the latest failure
}

const (
	// watchInterval is how exact a gap is measured, watchPatience how long an answer may take to count as one.
	watchInterval = 50 * time.Millisecond
	watchPatience = 2 * time.Second
)

// run asks until ctx ends.
func (w *watch) run(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		askCtx, cancel := context.WithTimeout(ctx, watchPatience)
		err := w.ask(askCtx)
		cancel()
		w.note(err)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (w *watch) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.why = err
		return
	}
	now := time.Now()
	if !w.last.IsZero() {
		w.longest = max(w.longest, now.Sub(w.last))
	}
	w.last = now
}

// take answers the longest time without an answer since it was called before.
func (w *watch) take() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest := max(w.longest, time.Since(w.last))
	w.longest = 0
	return longest
}

// watchHub asks what the hub knows by itself.
func watchHub() *watch {
	return &watch{what: "hub", ask: func(ctx context.Context) error {
		_, err := hub.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
		return err
	}}
}

// watchCluster asks, by way of the hub, what the leading worker of a cluster knows.
func watchCluster(sandbox *sandboxv1.Sandbox) *watch {
	return &watch{what: sandbox.GetClusterId(), ask: func(ctx context.Context) error {
		_, err := hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: sandbox.GetId()})
		return err
	}}
}
