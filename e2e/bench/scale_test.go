// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/e2e/must"
)

// TestMain lets the test's binary be the processes of simulated workers, as the bench's own is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == awayCommand {
		os.Exit(exitCode(child(context.Background(), os.Args[1:])))
	}
	os.Exit(m.Run())
}

// Eight clusters go through every phase: each time the API of each replica ends with what the workers have, and no claim fails.
func TestReachOfEightClusters(t *testing.T) {
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, "atoll-hub"), "navix.sh/atoll/hub")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the hub: %v\n%s", err, out)
	}
	for name, hubs := range map[string]int{"one hub": 1, "three replicas": 3} {
		t.Run(name, func(t *testing.T) { reachEight(t, dir, hubs) })
	}
}

func reachEight(t *testing.T, binDir string, hubs int) {
	s := scale{
		clusters: []int{8}, envs: 3, shared: 4, members: 24, pods: 40, churn: 40, hubs: hubs, memory: 512, processes: 2, changed: 1, single: 3,
		phase: 500 * time.Millisecond, lost: 200 * time.Millisecond,
	}
	must.Succeed(t, s.validate())
	out := &bytes.Buffer{}
	b := &bench{binDir: binDir, outDir: t.TempDir(), out: out, doc: document{Schema: 1}}
	_ = b.run(t.Context(), s.parts(time.Minute)) // what misses a target of time does not fail on a busy machine
	doc := written(t, b)
	names := resultNames(doc)
	for _, p := range doc.Parts {
		if p.Error != "" {
			t.Errorf("part %s: %s", p.Name, p.Error)
		}
	}
	for _, want := range []string{
		"joining at once: until every report", "at rest: p99", "all report: bytes", "a third lost and back: until the API",
		"the hub killed: until every report", "all workers replaced, one after the other: until", "Envs changed by the catalogue: until every",
		"one of 8 Envs changed by the catalogue: until all of its 4 clusters",
	} {
		if !strings.Contains(names, "8 clusters 8 clusters, "+want) {
			t.Errorf("no result %q of 8 clusters in %s", want, names)
		}
	}
	for _, r := range doc.Results {
		if r.Errors > 0 {
			t.Errorf("%s: %d errors", r.Name, r.Errors)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestExponent(t *testing.T) {
	for name, tc := range map[string]struct {
		values map[int]float64
		want   float64
		ok     bool
	}{
		"constant":      {map[int]float64{10: 7, 100: 7, 1000: 7}, 0, true},
		"in proportion": {map[int]float64{10: 1, 100: 10, 1000: 100}, 1, true},
		"squared":       {map[int]float64{10: 1, 100: 100}, 2, true},
		"one size":      {map[int]float64{10: 1}, 0, false},
		"nothing":       {map[int]float64{10: 0, 100: 1}, 0, false},
	} {
		if got, ok := exponent(tc.values); ok != tc.ok || math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: %g, %t", name, got, ok)
		}
	}
}

// Figures of several sizes have an exponent, and those of one have none.
func TestGrowth(t *testing.T) {
	g := growth{}
	for clusters, value := range map[int]float64{10: 3, 1000: 300} {
		g.note("bytes", result{Value: value}, clusters)
	}
	g.note("once", result{Value: 1}, 10)
	if got := g.results(); len(got) != 1 || got[0].Name != "growth with the clusters, bytes" || math.Abs(got[0].Value-1) > 1e-9 {
		t.Errorf("%+v", got)
	}
}

// Worlds of processes are parts of the whole one: no cluster is in two or in none, and clusters that share Envs are together.
func TestSplitWorlds(t *testing.T) {
	for _, tc := range []struct{ clusters, processes, want int }{{1000, 4, 4}, {10, 2, 2}, {10, 4, 3}, {3, 2, 1}, {1, 8, 1}} {
		s := scale{envs: 100, shared: 4, members: 2000, pods: 1000, processes: tc.processes}
		whole := s.world(tc.clusters)
		next := 0
		worlds := s.split(whole)
		for _, w := range worlds {
			if w.First != next || w.First%w.Shared != 0 || w.Clusters < 1 || w.ID(0) != whole.ID(next) || w.Env(0, 1) != whole.Env(next, 1) {
				t.Errorf("%d clusters: %+v begins at %d", tc.clusters, w, next)
			}
			next += w.Clusters
		}
		if next != tc.clusters || len(worlds) != tc.want {
			t.Errorf("%d clusters over %d processes: %+v", tc.clusters, tc.processes, worlds)
		}
	}
}

// A cluster's members have its Pods, all of them, in every round.
func TestPodsAreCounted(t *testing.T) {
	w := crowd.World{Clusters: 4, Envs: 7, Shared: 4, Members: 3, Pods: 40}
	for round := range 3 {
		idle, running := int32(0), int32(0)
		for n := range w.Envs {
			for _, m := range w.Segment(1, n, round).GetMembers() {
				idle, running = idle+m.GetIdle(), running+m.GetRunning()
			}
		}
		if idle+running != 40 || (running > 0) != (round == 1) {
			t.Errorf("round %d: %d idle, %d running", round, idle, running)
		}
	}
}

func TestScaleFlags(t *testing.T) {
	for args, want := range map[string]string{
		"":                       "",
		"-clusters 10,1000":      "",
		"-clusters 0":            `"0" is not valid, want numbers from 1 to 10000`,
		"-clusters 10,":          `"10," is not valid`,
		"-members 100":           "-members 100: 0 for each of the Envs in a cluster",
		"-members 9000":          "want 1 to 8",
		"-memory 0":              "-memory: 0 is not valid",
		"-hubs 0":                "-hubs: 0 is not valid",
		"-lost 30s":              "to lose clusters for less than a phase",
		"-churn 0 -processes -1": "-processes: -1 is not valid",
	} {
		var s scale
		flags := flag.NewFlagSet("reach", flag.ContinueOnError)
		flags.SetOutput(&bytes.Buffer{})
		s.bind(flags)
		err := flags.Parse(strings.Fields(args))
		if err == nil {
			err = s.validate()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// An order that a workers' process does not know is an error, and ends nothing.
func TestOrders(t *testing.T) {
	w := crowd.World{Clusters: 1, Envs: 1, Shared: 1}
	c, err := crowd.Prepare(w, func(int) (crowd.Options, error) { return crowd.Options{}, nil })
	must.Succeed(t, err)
	o := &outskirts{crowd: c}
	if err := o.obey(t.Context(), order{Do: "dance"}, &told{}); err == nil || !strings.Contains(err.Error(), `"dance"`) {
		t.Errorf("an unknown order: %v", err)
	}
	var answer told
	must.Succeed(t, o.obey(t.Context(), order{Do: doShow, Sample: [][2]int{{0, 0}}}, &answer))
	text, err := json.Marshal(answer.Members)
	must.Succeed(t, err)
	if want := `{"c0000/env-000000/env-000000-small":{"Idle":20,"Ready":10,"Running":100}}`; string(text) != want {
		t.Errorf("shown %s, want %s", text, want)
	}
}
