// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"text/tabwriter"
	"time"

	"navix.sh/atoll/e2e/load"
)

// stepResult is one line of the demo.
type stepResult struct {
	Name    string  `json:"name"`
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`
	Detail  string  `json:"detail"`
}

// summary is bin/demo/summary.json.
type summary struct {
	Schema             int            `json:"schema"`
	Steps              []stepResult   `json:"steps"`
	Clusters           int            `json:"clusters"`
	ClaimsOK           int            `json:"claims_ok"`
	ClaimsFailed       int            `json:"claims_failed"`
	DoubleAssigned     int            `json:"double_assigned"`
	ByCluster          map[string]int `json:"by_cluster"`
	P50Millis          float64        `json:"p50_ms"`
	P99Millis          float64        `json:"p99_ms"`
	ForeignSegmentsOK  bool           `json:"foreign_segments_ok"`
	HubDownLocalClaims int            `json:"hub_down_local_claims_ok"`
	HubRecovered       bool           `json:"hub_recovered"`
}

func (w *world) summary() summary {
	w.mu.Lock()
	defer w.mu.Unlock()
	return summary{
		Schema: 1, Steps: w.done, Clusters: len(clusters), ClaimsOK: w.ok, ClaimsFailed: w.bad,
		DoubleAssigned: w.caller.Holdings.Counts().Doubled,
		ByCluster:      w.byCluster, P50Millis: quantile(w.latencies, 0.5), P99Millis: quantile(w.latencies, 0.99),
		ForeignSegmentsOK: w.foreignOK, HubDownLocalClaims: w.hubDownOK, HubRecovered: w.hubRecovered,
	}
}

// quantile returns milliseconds, to a tenth.
func quantile(samples []time.Duration, q float64) float64 {
	return math.Round(float64(load.Quantile(samples, q).Microseconds())/100) / 10
}

func (s summary) print(out io.Writer) {
	tw := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "\nSTEP\tRESULT\tSECONDS\tDETAIL")
	for _, step := range s.Steps {
		result := "ok"
		if !step.OK {
			result = "FAILED"
		}
		fmt.Fprintf(tw, "%s\t%s\t%.1f\t%s\n", step.Name, result, step.Seconds, step.Detail)
	}
	_ = tw.Flush()
	fmt.Fprintf(out, "\n%d claims answered, %d failed, %d Pods answered twice; by cluster %v; p50 %.1f ms, p99 %.1f ms\n",
		s.ClaimsOK, s.ClaimsFailed, s.DoubleAssigned, s.ByCluster, s.P50Millis, s.P99Millis)
}

func (s summary) write(path string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the summary: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the summary: %w", err)
	}
	return nil
}
