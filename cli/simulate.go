// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/durable"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/simulate"
)

// simulation has the command's flags.
type simulation struct {
	files                    []string
	env, cluster             string
	trace, scenario          string
	duration, runs, podStart time.Duration
	patience                 time.Duration
	wanted                   float64
	quota                    int32
	seed                     uint64
	out                      string
	text                     bool
	from                     beginning
}

// beginning is the state of an Env with which a run starts, as the hub reports it.
type beginning struct {
	name string // NAMESPACE/NAME; empty: the manifest describes the start
	env  *sandboxv1.Env
}

func simulateCommand(a *app) *cobra.Command {
	s := &simulation{}
	cmd := &cobra.Command{
		Use:   "simulate [-f ENV.yaml]... [--trace T.csv | --scenario NAME]",
		Short: "Try the autoscaling policy of an Env, on days of load in seconds",
		Long:  simulateHelp(),
		Example: `  # The policy in env.yaml on a day of people at work, with a picture.
  atollctl simulate -f env.yaml --scenario daily --out day.svg

  # Two policies, side by side, on what came last Tuesday.
  atollctl simulate -f now.yaml -f proposed.yaml --trace tuesday.csv

  # What a changed policy would do from here, at noon.
  atollctl simulate -f proposed.yaml --cluster-state default/python --scenario bursts

  # tuesday.csv: claims a minute, each sandbox used for five minutes.
  time,over,claims,duration
  2026-01-06T08:00:00Z,60s,12,5m
  2026-01-06T08:01:00Z,60s,31,5m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.start(cmd, a) },
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&s.files, "file", "f", nil,
		"manifest with a SandboxEnv, - for standard input; several are compared (default: an Env of one pool, 2 to 50 Pods)")
	flags.StringVar(&s.env, "env", "", "name of the Env, where a manifest has several")
	flags.StringVar(&s.cluster, "cluster", "",
		"simulate this cluster's members alone (default: those of all clusters, each with a worker of its own)")
	flags.StringVar(&s.from.name, "cluster-state", "",
		"start with the Pods and sandboxes that the hub reports of this Env, NAMESPACE/NAME; without --file its manifest is the catalogue's")
	flags.StringVar(&s.trace, "trace", "", "CSV file with the claims, - for standard input")
	flags.StringVar(&s.scenario, "scenario", "daily", "what happens, where there is no trace")
	flags.DurationVar(&s.duration, "duration", 0, "how long is simulated (default: the scenario's own; a trace's, and a quarter of an hour)")
	flags.DurationVar(&s.runs, "sandbox-duration", 5*time.Minute, "how long a sandbox is used, typically: half to twice as long")
	flags.Float64Var(&s.wanted, "peak", 0,
		"sandboxes wanted at the same time where a scenario's demand is highest (default: 80 % of maxReplicas)")
	flags.DurationVar(&s.podStart, "pod-start", 8*time.Second, "how long a Pod takes until it is idle, typically: half to twice as long")
	flags.DurationVar(&s.patience, "startup-timeout", 2*time.Minute, "how long a claim waits before it is refused")
	flags.Int32Var(&s.quota, "quota", -1, "Pods that admission grants each cluster; below 0: any number")
	flags.Uint64Var(&s.seed, "seed", 1, "decides everything that is random: the same seed gives the same run")
	flags.StringVar(&s.out, "out", "", "draw the run into this SVG file")
	flags.BoolVar(&s.text, "text", false, "draw the run in characters, with everything that was decided")
	cmd.MarkFlagsMutuallyExclusive("trace", "scenario")
	return cmd
}

func simulateHelp() string {
	b := &strings.Builder{}
	b.WriteString(`Try the autoscaling policy of an Env, on days of load in seconds.

The decisions are the worker's own; the cluster is a model: Pods take time to start, sandboxes are used for a while, claims
queue until they lose patience, caches lag. Nothing is contacted but with --cluster-state, which reads one Env. What comes out is
how many claims waited and for how long, what the idle Pods cost, and why the autoscaler did what it did.

Scenarios:

`)
	for _, s := range simulate.Scenarios() {
		fmt.Fprintf(b, "  %-13s %s (%s)\n", s.Name, s.About, strings.TrimSuffix(strings.TrimSuffix(s.Duration.String(), "0s"), "0m"))
	}
	b.WriteString("\n" + simulate.TraceHelp)
	return b.String()
}

// start reads the state with which the run starts, and runs the simulation.
func (s *simulation) start(cmd *cobra.Command, a *app) error {
	if s.from.name != "" {
		namespace, name, ok := strings.Cut(s.from.name, "/")
		if !ok || namespace == "" || name == "" {
			return problem.InvalidField("--cluster-state", s.from.name, "NAMESPACE/NAME")
		}
		if err := a.call(cmd, func(ctx context.Context, c clients) (err error) {
			s.from.env, err = c.envs.GetEnv(ctx, &sandboxv1.GetEnvRequest{Namespace: namespace, Name: name})
			return err
		}); err != nil {
			return err
		}
	}
	return s.run(cmd, a.output)
}

// members returns the hub's report about the members of the Env.
func (s *simulation) members() (out []simulate.MemberState) {
	for _, c := range s.from.env.GetClusters() {
		for _, m := range c.GetMembers() {
			out = append(out, simulate.MemberState{Cluster: c.GetClusterId(), Name: m.GetName(), Replicas: m.GetDesired(), Running: m.GetRunning()})
		}
	}
	return out
}

// manifest reads an Env from a file. Without a file it reads the Env from the catalogue, else it uses the example.
func (s *simulation) manifest(cmd *cobra.Command, file string) (env simulate.Env, err error) {
	if file == "" && s.from.env == nil {
		return simulate.ExampleEnv(), nil
	}
	read := func(r io.Reader) (err error) {
		env, err = simulate.ReadEnv(r, s.env, s.cluster)
		return err
	}
	if file != "" {
		return env, readFile(cmd, file, read)
	}
	kept := s.from.env.GetCatalog().GetManifest()
	if kept == nil {
		return env, problem.InvalidField("--file", "", "the manifest of "+s.from.name+", which the hub's catalogue does not have")
	}
	data, err := kept.MarshalJSON()
	if err != nil {
		return env, fmt.Errorf("reading the catalogue's manifest: %w", err)
	}
	return env, read(bytes.NewReader(data))
}

func (s *simulation) run(cmd *cobra.Command, output string) error {
	if err := s.check(output); err != nil {
		return err
	}
	files := s.files
	if len(files) == 0 {
		files = []string{""}
	}
	var names []string
	var summaries []simulate.Summary
	for _, file := range files {
		run, err := s.simulate(cmd, file)
		if err != nil {
			return err
		}
		if s.text {
			if err := run.WriteText(cmd.OutOrStdout()); err != nil {
				return fmt.Errorf("writing the text: %w", err)
			}
			fmt.Fprintln(cmd.OutOrStdout())
		}
		if s.out != "" {
			if err := writeFile(s.out, run.WriteSVG); err != nil {
				return err
			}
		}
		name := nameOf(file)
		if file == "" && s.from.env != nil {
			name = s.from.name
		}
		names, summaries = append(names, name), append(summaries, run.Summarize())
	}
	return printSummaries(cmd.OutOrStdout(), output, names, summaries)
}

func (s *simulation) check(output string) error {
	var faults []problem.Field
	fault := func(field string, value any, valid string) {
		faults = append(faults, problem.Field{Field: field, Value: fmt.Sprint(value), Valid: valid})
	}
	if s.out != "" && len(s.files) > 1 {
		fault("--out", s.out, "one --file at a time")
	}
	if output == "name" {
		fault("--output", output, "table, wide, json or yaml")
	}
	if s.duration < 0 || s.duration > simulate.MaxDuration {
		fault("--duration", s.duration, "0s to "+simulate.MaxDuration.String())
	}
	if s.runs <= 0 || s.runs > simulate.MaxDuration {
		fault("--sandbox-duration", s.runs, "above 0s, to "+simulate.MaxDuration.String())
	}
	if s.podStart <= 0 || s.podStart > simulate.MaxDuration {
		fault("--pod-start", s.podStart, "above 0s, to "+simulate.MaxDuration.String())
	}
	if s.patience <= 0 || s.patience > simulate.MaxDuration {
		fault("--startup-timeout", s.patience, "above 0s, to "+simulate.MaxDuration.String())
	}
	if !(s.wanted >= 0 && s.wanted <= simulate.MaxWanted) {
		fault("--peak", s.wanted, fmt.Sprintf("0 to %d", simulate.MaxWanted))
	}
	if len(faults) > 0 {
		return problem.InvalidFields(faults...)
	}
	return nil
}

// simulate runs one manifest; without a name, the example.
func (s *simulation) simulate(cmd *cobra.Command, file string) (*simulate.Run, error) {
	env, err := s.manifest(cmd, file)
	if err != nil {
		return nil, err
	}
	var running []simulate.Claim
	if s.from.env != nil {
		if env, running, err = env.Begin(s.members(), s.runs); err != nil {
			return nil, err
		}
	}
	if s.wanted == 0 {
		s.wanted = env.Usual() // of the first Env, so that policies are compared with the same claims
	}
	if !env.Autoscaled() {
		fmt.Fprintf(cmd.ErrOrStderr(), "no member of %s is in an autoscaling group that is enabled: replicas stay as they are\n", env.Name)
	}
	plan, err := s.plan(cmd, env)
	if err != nil {
		return nil, err
	}
	if plan.Claims = append(running, plan.Claims...); len(plan.Claims) > simulate.MaxClaims {
		return nil, problem.InvalidField("--peak", fmt.Sprint(s.wanted), fmt.Sprintf("a demand of fewer than %d claims", simulate.MaxClaims))
	}
	plan.Model.PodStart, plan.Model.Patience, plan.Model.Quota = simulate.Typical(s.podStart), s.patience, s.quota
	return simulate.Simulate(cmd.Context(), plan)
}

func (s *simulation) plan(cmd *cobra.Command, env simulate.Env) (simulate.Plan, error) {
	runs := simulate.Typical(s.runs)
	if s.trace == "" {
		scenario, err := simulate.FindScenario(s.scenario)
		if err != nil {
			return simulate.Plan{}, err
		}
		plan := scenario.Plan(env, simulate.Settings{Wanted: s.wanted, Runs: runs, Duration: s.duration, Seed: s.seed})
		if len(plan.Claims) == simulate.MaxClaims {
			return simulate.Plan{}, problem.InvalidField("--peak", fmt.Sprint(s.wanted),
				fmt.Sprintf("a demand and a duration of fewer than %d claims", simulate.MaxClaims))
		}
		return plan, nil
	}
	plan := simulate.Plan{Name: filepath.Base(s.trace), Env: env, Model: simulate.DefaultModel(), Duration: s.duration, Seed: s.seed}
	err := readFile(cmd, s.trace, func(r io.Reader) (err error) {
		plan.Claims, err = simulate.ReadTrace(r, runs, s.seed)
		return err
	})
	if err != nil {
		return simulate.Plan{}, err
	}
	if plan.Duration == 0 {
		plan.Duration = 15 * time.Minute
		if n := len(plan.Claims); n > 0 {
			plan.Duration += plan.Claims[n-1].At.Round(time.Second)
		}
	}
	return plan, nil
}

func printSummaries(w io.Writer, output string, names []string, summaries []simulate.Summary) error {
	if tabular(output) {
		return simulate.WriteTable(w, names, summaries)
	}
	type named struct {
		Name string `json:"name"`
		simulate.Summary
	}
	var all []named
	for i := range names {
		all = append(all, named{names[i], summaries[i]})
	}
	return encodePlain(w, output, all)
}

func nameOf(file string) string {
	switch file {
	case "":
		return "example"
	case "-":
		return "stdin"
	}
	return strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
}

// readFile passes a file to read; - is standard input.
func readFile(cmd *cobra.Command, name string, read func(io.Reader) error) error {
	if name == "-" {
		return read(cmd.InOrStdin())
	}
	f, err := os.Open(name)
	if err != nil {
		return usageError{Err: err}
	}
	defer f.Close()
	if err := read(f); err != nil {
		if p := (*problem.Error)(nil); errors.As(err, &p) {
			p.Message = name + ": " + p.Message // which wrapping would not show
			return p
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// writeFile writes a file atomically.
func writeFile(name string, write func(io.Writer) error) error {
	err := durable.WriteFile(name, 0o644, func(f *os.File) error { return write(f) })
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
