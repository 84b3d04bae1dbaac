// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/pkg/heap"
)

// scaleCommand makes this program measure a hub at several numbers of clusters. `make reach` calls it.
const scaleCommand = "reach"

// scale is what it measures. Envs, members and Pods are those of a cluster on average, so that everything grows with the clusters.
type scale struct {
	clusters            []int
	envs, members, pods int
	shared              int // clusters that have an Env
	churn               float64
	hubs                int // replicas
	memory              int // MiB that each may have
	processes           int // of simulated workers
	changed             int // Envs that the catalogue changes, by cluster
	single              int // changes of one Env, after each other
	catalogue           bool
	phase, lost         time.Duration
}

func (s *scale) bind(flags *flag.FlagSet) {
	s.clusters = []int{10, 100}
	flags.Func("clusters", "numbers of clusters, one measurement each (default 10,100)", func(text string) (err error) {
		s.clusters, err = parseSizes(text)
		return err
	})
	flags.IntVar(&s.envs, "envs", 100, "Envs for each cluster, each shared by several")
	flags.IntVar(&s.shared, "shared", 4, "clusters that have the same Env")
	flags.IntVar(&s.members, "members", 2000, "members of a cluster, of all its Envs")
	flags.IntVar(&s.pods, "pods", 1000, "Pods of a cluster, counted")
	flags.Float64Var(&s.churn, "churn", 200, "claims a second")
	flags.IntVar(&s.hubs, "hubs", 1, "replicas of the hub, which share an etcd")
	flags.IntVar(&s.memory, "memory", 1024, "MiB that the hub, or each replica, may have")
	flags.IntVar(&s.processes, "processes", 2, "processes of simulated workers")
	flags.IntVar(&s.changed, "changed", 1, "Envs that the catalogue changes, for each cluster")
	flags.IntVar(&s.single, "single", 20, "how often one Env of the catalogue is changed, and has to reach its clusters")
	flags.BoolVar(&s.catalogue, "catalogue", false, "measure nothing but how clusters join, and the catalogue")
	flags.DurationVar(&s.phase, "phase", 20*time.Second, "how long claims are measured in each phase")
	flags.DurationVar(&s.lost, "lost", 10*time.Second, "how long a third of the clusters is lost; less than -phase")
}

const mostClusters = 10_000

func parseSizes(text string) (sizes []int, err error) {
	for _, one := range strings.Split(text, ",") {
		n, err := strconv.Atoi(one)
		if err != nil || n < 1 || n > mostClusters {
			return nil, fmt.Errorf("%q is not valid, want numbers from 1 to %d, separated by commas", text, mostClusters)
		}
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes), nil
}

// world is all clusters of one size.
func (s *scale) world(clusters int) crowd.World {
	shared := min(s.shared, clusters)
	envs := s.envs * shared
	return crowd.World{Clusters: clusters, Envs: envs, Shared: shared, Members: s.members / envs, Pods: s.pods}
}

// split divides a world over processes; clusters with the same Envs stay together.
func (s *scale) split(w crowd.World) (worlds []crowd.World) {
	each := (w.Clusters + s.processes - 1) / s.processes
	each = (each + w.Shared - 1) / w.Shared * w.Shared
	for at := 0; at < w.Clusters; at += each {
		one := w
		one.First, one.Clusters = at, min(each, w.Clusters-at)
		worlds = append(worlds, one)
	}
	return worlds
}

func (s *scale) validate() error {
	var errs []error
	for name, value := range map[string]int{
		"envs": s.envs, "shared": s.shared, "pods": s.pods, "hubs": s.hubs, "memory": s.memory, "processes": s.processes, "changed": s.changed,
		"single": s.single,
	} {
		if value < 1 {
			errs = append(errs, fmt.Errorf("-%s: %d is not valid, want 1 or more", name, value))
		}
	}
	if s.churn <= 0 || s.phase <= 0 || s.lost <= 0 || s.lost >= s.phase {
		errs = append(errs, fmt.Errorf("-churn %g, -phase %s, -lost %s: not valid, want more than 0, and to lose clusters for less than a phase",
			s.churn, s.phase, s.lost))
	}
	for _, clusters := range s.clusters {
		if m := s.world(clusters).Members; m < 1 || m > crowd.MaxMembers {
			errs = append(errs, fmt.Errorf("-members %d: %d for each of the Envs in a cluster (-envs times -shared) is not valid, want 1 to %d",
				s.members, m, crowd.MaxMembers))
		}
	}
	return errors.Join(errs...)
}

// parts are a part for each size, and one for how figures grew.
func (s *scale) parts(limit time.Duration) (all []part) {
	grown := growth{}
	for _, clusters := range s.clusters {
		all = append(all, part{
			name: fmt.Sprintf("%d clusters", clusters), limit: limit,
			measure: func(b *bench, ctx context.Context, add func(...result)) error {
				return b.reachOut(ctx, s, clusters, func(r result, key string) {
					if key != "" {
						grown.note(key, r, clusters)
					}
					r.Name = fmt.Sprintf("%d clusters, %s", clusters, r.Name)
					add(r)
				})
			},
		})
	}
	if len(s.clusters) > 1 {
		all = append(all, part{name: "growth", limit: limit, measure: func(_ *bench, _ context.Context, add func(...result)) error {
			add(grown.results()...)
			return nil
		}})
	}
	return all
}

// growth collects figures by their names, and then by clusters.
type growth map[string]map[int]float64

func (g growth) note(key string, r result, clusters int) {
	if g[key] == nil {
		g[key] = map[int]float64{}
	}
	g[key][clusters] = r.Value
}

// results are the exponents of the clusters' number with which figures grow: 0 is no growth, 1 is in proportion.
func (g growth) results() (out []result) {
	for _, name := range slices.Sorted(maps.Keys(g)) {
		if e, ok := exponent(g[name]); ok {
			out = append(out, measured("growth with the clusters, "+name, "exponent", []float64{e}))
		}
	}
	return out
}

// exponent is the slope of the logarithms, by least squares. It is not known of one size, or of values that are not positive.
func exponent(values map[int]float64) (slope float64, ok bool) {
	var n, sx, sy, sxx, sxy float64
	for clusters, value := range values {
		if value <= 0 {
			return 0, false
		}
		x, y := math.Log(float64(clusters)), math.Log(value)
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	if n < 2 {
		return 0, false
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx), true
}

// measureScale is the command.
func measureScale(ctx context.Context, args []string) int {
	var s scale
	flags := flag.NewFlagSet(scaleCommand, flag.ContinueOnError)
	s.bind(flags)
	binDir := flags.String("bin-dir", "bin", "folder with atoll-hub")
	outDir := flags.String("out", filepath.Join("bin", "reach"), "folder for latest.json and the logs")
	limit := flags.Duration("limit", 20*time.Minute, "how long one number of clusters may take")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("arguments %q: none are valid", strings.Join(flags.Args(), " "))
	}
	if err == nil {
		err = s.validate()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench reach:", err)
		return 2
	}
	for _, dir := range []*string{binDir, outDir} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return exitCode(err)
		}
	}
	heap.Relax()
	b := &bench{binDir: *binDir, outDir: *outDir, out: os.Stdout}
	b.doc = document{Schema: 1, Commit: commit(ctx), Load: loadAverage()}
	return exitCode(b.run(ctx, s.parts(*limit)))
}
