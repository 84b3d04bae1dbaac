// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// result is one line of the report. Limit is what the same run reached without Atoll; Ratio is Value over Limit.
type result struct {
	Name    string   `json:"name"`
	Value   float64  `json:"value"`
	Unit    string   `json:"unit"`
	Limit   *float64 `json:"limit"`
	Ratio   *float64 `json:"ratio"`
	Target  string   `json:"target"`
	Met     *bool    `json:"met"`
	Samples int      `json:"samples"`
	P50     float64  `json:"p50"`
	P90     float64  `json:"p90"`
	P99     float64  `json:"p99"`
	Max     float64  `json:"max"`
	Errors  int      `json:"errors"`
}

// withLatencies fills the distribution, in milliseconds.
func (r result) withLatencies(samples []time.Duration, errors int) result {
	r.Samples, r.Errors = len(samples), errors
	r.P50, r.P90, r.P99, r.Max = millis(quantile(samples, 0.5)), millis(quantile(samples, 0.9)), millis(quantile(samples, 0.99)), millis(quantile(samples, 1))
	return r
}

// against sets the limit and the ratio, and judges: at most target when it is an upper bound, else at least.
func (r result) against(limit, ratio float64, bounds interval, target float64, upper bool) result {
	limit, ratio = round(limit), round(ratio)
	r.Limit, r.Ratio = &limit, &ratio
	sign, met := "<=", bounds.low <= target
	if !upper {
		sign, met = ">=", bounds.high >= target
	}
	r.Target = fmt.Sprintf("%s %gx", sign, target)
	r.Met = &met
	return r
}

// mostErrors is one in how many requests may fail.
const mostErrors = 100

// exactly judges a value that knows no noise.
func (r result) exactly(target float64) result {
	met := r.Value == target
	r.Target, r.Met = fmt.Sprintf("= %g", target), &met
	return r
}

// verdict is Met, unless so many requests failed that those which did not say little.
func (r result) verdict() *bool {
	if r.Errors*mostErrors > r.Samples+r.Errors {
		return new(false)
	}
	return r.Met
}

func millis(d time.Duration) float64 { return round(float64(d) / float64(time.Millisecond)) }

func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// document is bin/bench/latest.json.
type document struct {
	Schema  int      `json:"schema"`
	Commit  string   `json:"commit"`
	Load    float64  `json:"load"`
	Results []result `json:"results"`
}

// add takes in what a part has measured.
func (d *document) add(results []result) {
	for _, r := range results {
		r.Met = r.verdict()
		d.Results = append(d.Results, r)
	}
}

func (d document) missed() []string {
	var names []string
	for _, r := range d.Results {
		if r.Met != nil && !*r.Met {
			names = append(names, r.Name)
		}
	}
	return names
}

func (d document) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("creating the report's folder: %w", err)
	}
	data, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func (d document) print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "\nRESULT\tVALUE\tUNIT\tLIMIT\tRATIO\tTARGET\tMET\tSAMPLES\tP50\tP90\tP99\tMAX\tERRORS")
	for _, r := range d.Results {
		met := "-"
		if r.Met != nil {
			met = map[bool]string{true: "yes", false: "MISSED"}[*r.Met]
		}
		fmt.Fprintf(tw, "%s\t%g\t%s\t%s\t%s\t%s\t%s\t%d\t%g\t%g\t%g\t%g\t%d\n", r.Name, r.Value, r.Unit, number(r.Limit), number(r.Ratio),
			strings.ReplaceAll(r.Target, "\t", " "), met, r.Samples, r.P50, r.P90, r.P99, r.Max, r.Errors)
	}
	_ = tw.Flush()
}

func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%g", *v)
}

// loadAverage of the last minute; NaN where the system does not tell.
func loadAverage() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return math.NaN()
	}
	var load float64
	if _, err := fmt.Sscan(string(data), &load); err != nil {
		return math.NaN()
	}
	return load
}
