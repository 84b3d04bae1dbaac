// SPDX-License-Identifier: Apache-2.0

// Command pictures draws the runs of docs/autoscaling.md, and fills in its tables. Its argument is the directory of both. The
// output depends only on the scenarios and Decide; TestPicturesAreUpToDate compares the committed files.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"navix.sh/atoll/pkg/simulate"
)

// page is the document, pictures the directory beside it.
const page, picturesDir = "autoscaling.md", "simulations"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "pictures: want one argument, the directory of "+page)
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	files, err := render(dir)
	if err != nil {
		return err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return fmt.Errorf("writing a picture: %w", err)
		}
	}
	return nil
}

// render creates all files.
func render(dir string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, s := range shown {
		r, err := run(strings.TrimSuffix(s.file, ".svg"), s.scenario, s.policy)
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		if err := r.WriteSVG(&b); err != nil {
			return nil, fmt.Errorf("drawing %s: %w", s.file, err)
		}
		out[filepath.Join(picturesDir, s.file)] = b.Bytes()
	}
	text, err := os.ReadFile(filepath.Join(dir, page))
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	for _, c := range compared {
		table, err := table(c.scenario, c.policies)
		if err != nil {
			return nil, err
		}
		if text, err = replace(text, c.scenario, table); err != nil {
			return nil, err
		}
	}
	out[page] = text
	return out, nil
}

func run(name, scenario string, p policy) (*simulate.Run, error) {
	s, err := simulate.FindScenario(scenario)
	if err != nil {
		return nil, err
	}
	env := simulate.ExampleEnv()
	wanted := env.Usual()
	p.change(&env)
	plan := s.Plan(env, simulate.Settings{Wanted: wanted, Runs: simulate.Typical(5 * time.Minute), Seed: 1})
	plan.Name = name
	return simulate.Simulate(context.Background(), plan)
}

func table(scenario string, policies []policy) (string, error) {
	var b strings.Builder
	b.WriteString("| policy | served at once | waited p99 | waited most | refused | Pod-hours running | idle | grew | shrank |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range policies {
		r, err := run(scenario, scenario, p)
		if err != nil {
			return "", err
		}
		s := r.Summarize()
		share := func(n int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(1, s.Claims))) }
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %.0f | %.0f | %d | %d |\n", p.name, share(s.ServedAtOnce),
			s.WaitedP99.Round(time.Second), s.WaitedMost.Round(time.Second), share(s.Refused), s.RunningHours, s.IdleHours, s.Grew, s.Shrank)
	}
	return b.String(), nil
}

// replace puts a table between its markers.
func replace(text []byte, name, table string) ([]byte, error) {
	begin, end := fmt.Sprintf("<!-- table %s, generated -->\n", name), "<!-- end -->"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return nil, fmt.Errorf("%s has no %q with %q after it", page, strings.TrimSpace(begin), end)
	}
	return []byte(before + begin + "\n" + table + "\n" + end + after), nil
}
