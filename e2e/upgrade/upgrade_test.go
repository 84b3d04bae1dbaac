// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// step takes one program to a version: the worker of a cluster, or the hub.
type step struct {
	cluster string
	to      *stack.Version
}

func (s step) String() string {
	if s.cluster == "" {
		return "hub to " + s.to.Name
	}
	return "worker of " + s.cluster + " to " + s.to.Name
}

func (s step) do(ctx context.Context) error {
	if s.cluster == "" {
		return atoll.UpgradeHub(ctx, *s.to)
	}
	return atoll.UpgradeWorker(ctx, s.cluster, *s.to)
}

// steps pass through all mixtures of versions: the hub first, the hub first on the way back, and the workers first.
func steps() []step {
	workers := func(to *stack.Version) []step {
		var out []step
		for _, cluster := range clusters {
			out = append(out, step{cluster, to})
		}
		return out
	}
	var out []step
	out = append(out, step{"", &new})
	out = append(out, workers(&new)...)
	out = append(out, step{"", &old})
	out = append(out, workers(&old)...)
	out = append(out, workers(&new)...)
	return append(out, step{"", &new})
}

// I1, I2, I6: whatever is upgraded or taken back under a steady load, and whichever versions work together meanwhile, no
// answered sandbox is lost, no Pod is answered twice, and callers that call again after UNAVAILABLE succeed.
func TestUpgradeUnderLoad(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	applyEnv(ctx, t)
	load := startLoad(ctx)
	kept := keep(ctx, t, load)
	watches := startWatches(t, kept)

	report := tabwriter.NewWriter(os.Stderr, 0, 0, 2, ' ', 0)
	fmt.Fprintf(report, "step\ttook\tno answer from: hub\t%s\tms\n", strings.Join(clusters, "\t"))
	for _, step := range steps() {
		for _, w := range watches {
			w.take()
		}
		begin := time.Now()
		if err := step.do(ctx); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		took := time.Since(begin)
		wait.For(t, patience, "the hub to hear of version "+step.to.Name, heardOf(step))
		for _, k := range kept {
			k.mustBeThere(ctx, t, load)
		}
		fmt.Fprintf(report, "%s\t%d", step, took.Milliseconds())
		for _, w := range watches {
			fmt.Fprintf(report, "\t%d", w.take().Milliseconds())
		}
		fmt.Fprintln(report, "\t")
	}
	for _, err := range load.stop() {
		t.Error(err)
	}
	_ = report.Flush()
	load.tally.print(os.Stderr)

	wantNoOther(ctx, t, load)
	for _, k := range kept {
		if err := load.release(ctx, k.sandbox); err != nil {
			t.Error(err)
		}
	}
	if err := atoll.Verify(ctx); err != nil {
		t.Error(err)
	}
}

// startWatches watches the hub, and each cluster through a sandbox that is kept there.
func startWatches(t *testing.T, kept []*kept) []*watch {
	ctx, cancel := context.WithCancel(context.Background())
	watches := []*watch{watchHub()}
	for _, cluster := range clusters {
		for _, k := range kept {
			if k.sandbox.GetClusterId() == cluster {
				watches = append(watches, watchCluster(k.sandbox))
				break
			}
		}
	}
	var running sync.WaitGroup
	for _, w := range watches {
		running.Go(func() { w.run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return watches
}

// wantNoOther holds the clusters to what callers know: there is no sandbox that no caller was given, or that was given
// back.
func wantNoOther(ctx context.Context, t *testing.T, l *load) {
	t.Helper()
	want := l.caller.Holdings.Live()
	wait.For(t, patience, "no other sandboxes than those that callers hold", func(ctx context.Context) error {
		got, err := liveSandboxes(ctx)
		if err != nil {
			return err
		}
		return wait.If(maps.Equal(got, want), fmt.Sprintf("pods with sandboxes %v, callers hold %v", got, want))
	})
}
