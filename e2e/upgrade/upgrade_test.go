// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// step takes one program to a version: the worker of a cluster, a replica of the hub, or the hub.
type step struct {
	cluster string
	replica stack.Program
	to      *stack.Version
}

func (s step) String() string {
	switch {
	case s.replica != nil:
		return s.replica.String() + " to " + s.to.Name
	case s.cluster == "":
		return "hub to " + s.to.Name
	}
	return "worker of " + s.cluster + " to " + s.to.Name
}

func (s step) do(ctx context.Context) error {
	switch {
	case s.replica != nil:
		return atoll.UpgradeReplica(ctx, s.replica, *s.to)
	case s.cluster == "":
		return atoll.UpgradeHub(ctx, *s.to)
	}
	return atoll.UpgradeWorker(ctx, s.cluster, *s.to)
}

// steps pass through all mixtures of versions: the hub first, the hub first on the way back, and the workers first.
func steps() []step {
	workers := func(to *stack.Version) []step {
		var out []step
		for _, cluster := range clusters {
			out = append(out, step{cluster: cluster, to: to})
		}
		return out
	}
	hub := func(to *stack.Version) (out []step) {
		for _, replica := range atoll.Hubs() {
			out = append(out, step{replica: replica, to: to})
		}
		if len(out) == 0 {
			out = []step{{to: to}}
		}
		return out
	}
	return slices.Concat(hub(&new), workers(&new), hub(&old), workers(&old), workers(&new), hub(&new))
}

// I1, I2, I6: under upgrades and load no answered sandbox is lost, no Pod is answered twice, and calls after UNAVAILABLE succeed.
func TestUpgradeUnderLoad(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	applyEnv(ctx, t)
	replicas, err := atoll.ReplicaClients()
	must.Succeed(t, err)
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
		if step.replica != nil {
			acrossReplicas(ctx, t, load, replicas)
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
	must.Succeed(t, atoll.Verify(ctx))
}

// acrossReplicas claims with a key at each replica, and calls again, looks and releases at each other one.
func acrossReplicas(ctx context.Context, t *testing.T, l *load, replicas map[string]*stack.Client) {
	t.Helper()
	at := func(what string, do func(context.Context) error) {
		t.Helper()
		if err := l.retryUntilDone(ctx, what, do); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for first, one := range replicas {
		for second, other := range replicas {
			if first == second {
				continue
			}
			var claimed, again *sandboxv1.Sandbox
			request := &sandboxv1.CreateSandboxRequest{ClaimKey: fmt.Sprintf("%s-%s-%d", first, second, time.Now().UnixNano())}
			at("claim at "+first, func(ctx context.Context) (err error) {
				claimed, err = l.caller.Claim(ctx, one, request)
				return err
			})
			at("the same at "+second, func(ctx context.Context) (err error) {
				again, err = l.caller.Claim(ctx, other, request)
				return err
			})
			if claimed.GetId() != again.GetId() {
				t.Errorf("%s gave sandbox %s, and %s gave %s for the same key", first, claimed.GetId(), second, again.GetId())
			}
			at("release at "+second, func(ctx context.Context) error { return l.caller.Release(ctx, other, claimed) })
		}
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

// wantNoOther holds the clusters to what callers know: no sandbox is there that no caller was given, or that was given back.
func wantNoOther(ctx context.Context, t *testing.T, l *load) {
	t.Helper()
	want := l.caller.Holdings.Live()
	wait.For(t, patience, "no other sandboxes than those that callers hold", func(ctx context.Context) error {
		got, err := liveSandboxes(ctx)
		return errors.Join(err, wait.If(maps.Equal(got, want), fmt.Sprintf("pods with sandboxes %v, callers hold %v", got, want)))
	})
}
