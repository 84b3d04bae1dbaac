// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// result is one line of the report. Value and Limit are medians over legs; Limit is the figure of the same run without Atoll.
// Ratio is the median of the ratios of pairs. Low and High are the 95 % interval of Ratio, or of Value if there is none.
type result struct {
	Part    string   `json:"part"`
	Name    string   `json:"name"`
	Value   float64  `json:"value"`
	Unit    string   `json:"unit"`
	Limit   *float64 `json:"limit"`
	Ratio   *float64 `json:"ratio"`
	Low     *float64 `json:"low"`
	High    *float64 `json:"high"`
	Target  string   `json:"target"`
	Met     *bool    `json:"met"`
	Judged  bool     `json:"judged"` // a missed target fails the bench
	Quick   bool     `json:"quick,omitempty"`
	Samples int      `json:"samples"`
	P50     float64  `json:"p50"`
	P90     float64  `json:"p90"`
	P99     float64  `json:"p99"`
	Max     float64  `json:"max"`
	Errors  int      `json:"errors"`

	counted bool // and so independent of the machine's load
}

// partResult is the result of a part.
type partResult struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	// OthersCPUs is the average number of processors that other processes took.
	OthersCPUs float64 `json:"othersCPUs"`
	OthersMost string  `json:"othersMost,omitempty"`
	Spoiled    bool    `json:"spoiled"`
	Error      string  `json:"error,omitempty"`
}

// document is bin/bench/latest.json.
type document struct {
	Schema  int          `json:"schema"`
	Commit  string       `json:"commit"`
	Load    float64      `json:"load"` // average at the start; nothing depends on it
	Quick   bool         `json:"quick,omitempty"`
	Parts   []partResult `json:"parts"`
	Results []result     `json:"results"`
}

// end adds a part's results. A figure that is not a number fails the part, and is left out.
func (d *document) end(o partResult, results []result) {
	for _, r := range results {
		if err := r.check(); err != nil {
			o.Error = strings.TrimPrefix(o.Error+"\n"+err.Error(), "\n")
			continue
		}
		r.Part, r.Quick = o.Name, d.Quick
		r.Judged = r.Met != nil && (r.counted || !o.Spoiled && !d.Quick)
		d.Results = append(d.Results, r)
	}
	d.Parts = append(d.Parts, o)
}

// check finds values that JSON cannot represent.
func (r result) check() error {
	for _, v := range []*float64{&r.Value, r.Limit, r.Ratio, r.Low, r.High, &r.P50, &r.P90, &r.P99, &r.Max} {
		if v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
			return fmt.Errorf("%s: %g is no figure", r.Name, *v)
		}
	}
	return nil
}

// verdict prints the summary of the run, and returns what failed or missed its target.
func (d document) verdict(w io.Writer) error {
	var errs []error
	fmt.Fprintln(w)
	for _, p := range d.Parts {
		if p.Spoiled {
			fmt.Fprintf(w, "SPOILED %s: others took %.2f processors, most of it %s; of its targets only counts are judged\n", p.Name, p.OthersCPUs,
				p.OthersMost)
		}
		if p.Error != "" {
			errs = append(errs, fmt.Errorf("part %s failed: %s", p.Name, p.Error))
		}
	}
	if d.Quick {
		fmt.Fprintln(w, "QUICK: of the targets only counts are judged")
	}
	for _, r := range d.Results {
		if r.Judged && !*r.Met {
			errs = append(errs, fmt.Errorf("missed %s: %s", r.Part, r.Name))
		}
	}
	return errors.Join(errs...)
}

func (d document) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("creating the report's folder: %w", err)
	}
	data, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	// An interrupted write keeps the earlier parts' results.
	if err := os.WriteFile(path+".partial", append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if err := os.Rename(path+".partial", path); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// print writes the last part's results.
func (d document) print(w io.Writer) {
	last := d.Parts[len(d.Parts)-1]
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "RESULT\tVALUE\tUNIT\tLIMIT\tRATIO\tLOW\tHIGH\tTARGET\tMET\tSAMPLES\tP50\tP90\tP99\tMAX\tERRORS")
	for _, r := range d.Results {
		if r.Part == last.Name {
			fmt.Fprintf(tw, "%s\t%g\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%g\t%g\t%g\t%g\t%d\n", r.Name, r.Value, r.Unit, number(r.Limit),
				number(r.Ratio),
				number(r.Low), number(r.High), r.Target, r.met(last.Spoiled), r.Samples, r.P50, r.P90, r.P99, r.Max, r.Errors)
		}
	}
	_ = tw.Flush()
	fmt.Fprintf(w, "%s: %.0f s, others took %.2f processors", last.Name, last.Seconds, last.OthersCPUs)
	if last.Spoiled {
		fmt.Fprintf(w, ", most of it %s: SPOILED", last.OthersMost)
	}
	if last.Error != "" {
		fmt.Fprintf(w, "\n%s FAILED: %s", last.Name, last.Error)
	}
	fmt.Fprintln(w)
}

func (r result) met(spoiled bool) string {
	var words []string
	switch {
	case r.Met == nil:
		words = append(words, "-")
	case *r.Met:
		words = append(words, "yes")
	default:
		words = append(words, "MISSED")
	}
	if r.Quick {
		words = append(words, "quick")
	}
	if spoiled && r.Met != nil && !r.Judged {
		words = append(words, "spoiled")
	}
	return strings.Join(words, ", ")
}

func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%g", *v)
}

func millis(d time.Duration) float64 { return round(float64(d) / float64(time.Millisecond)) }

func round(v float64) float64 { return math.Round(v*1000) / 1000 }

func ptr(v float64) *float64 { v = round(v); return &v }

// loadAverage of the last minute; 0 where the system does not report it.
func loadAverage() float64 {
	data, _ := os.ReadFile("/proc/loadavg")
	var load float64
	_, _ = fmt.Sscan(string(data), &load)
	return load
}
