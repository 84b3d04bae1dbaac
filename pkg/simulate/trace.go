// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// MaxClaims bounds the claims of a run. A scenario creates at most this many, and a longer trace is rejected.
	MaxClaims = 5_000_000
	// MaxDuration is the longest trace, and the longest run.
	MaxDuration = 366 * 24 * time.Hour
	// MaxWanted is the highest demand of a scenario.
	MaxWanted = 100_000
)

// Columns of a trace, in any order; all but the first are optional.
const (
	columnTime     = "time"
	columnClaims   = "claims"
	columnDuration = "duration"
	columnOver     = "over"
	columnGroup    = "group"
)

// TraceHelp describes a trace.
const TraceHelp = `A trace is a CSV file with a header. Its columns, in any order:

  time      when: an offset (90s, 1h30m, or a number of seconds), or RFC 3339 times, of which the first one is the start
  claims    how many claims come (default 1)
  duration  how long each sandbox is used: 5m, or a number of seconds (default: --sandbox-duration)
  over      the claims come at random within this time instead of at once, as for counts a minute (default 0)
  group     the scaling group that they ask for (default: any)

Lines that begin with # are comments.`

// ReadTrace reads claims from a trace. runs applies to rows without a time of use.
func ReadTrace(r io.Reader, runs Spread, seed uint64) ([]Claim, error) {
	return readTrace(r, runs, seed, MaxClaims)
}

func readTrace(r io.Reader, runs Spread, seed uint64, most int) ([]Claim, error) {
	in := csv.NewReader(r)
	in.Comment, in.TrimLeadingSpace, in.ReuseRecord = '#', true, true
	header, err := in.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("the trace is empty, want a header that names the columns %s", columnNames())
	case err != nil:
		return nil, fmt.Errorf("the trace's header: %w", err)
	}
	t := tracer{most: most, at: map[string]int{}, runs: runs, random: rand.New(rand.NewPCG(seed, 2))}
	for i, name := range header {
		name = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")))
		if !slices.Contains([]string{columnTime, columnClaims, columnDuration, columnOver, columnGroup}, name) {
			return nil, fmt.Errorf("line 1 of the trace has a column %q, want %s", name, columnNames())
		}
		if _, twice := t.at[name]; twice {
			return nil, fmt.Errorf("line 1 of the trace names the column %q twice", name)
		}
		t.at[name] = i
	}
	if _, ok := t.at[columnTime]; !ok {
		return nil, fmt.Errorf("line 1 of the trace has no column %q; columns are %s", columnTime, columnNames())
	}
	for {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("the trace: %w", err)
		}
		line, _ := in.FieldPos(0)
		if err := t.row(record); err != nil {
			return nil, fmt.Errorf("line %d of the trace, %w", line, err)
		}
	}
	sortClaims(t.claims)
	return t.claims, nil
}

func columnNames() string {
	return strings.Join([]string{columnTime, columnClaims, columnDuration, columnOver, columnGroup}, ", ")
}

// tracer is a partly read trace.
type tracer struct {
	at     map[string]int
	runs   Spread
	random *rand.Rand
	start  *time.Time // of a trace with calendar times
	offset bool       // a row had an offset
	claims []Claim
	most   int // of them
}

func (t *tracer) row(record []string) error {
	offset, err := t.when(t.field(record, columnTime))
	if err != nil {
		return err
	}
	n := 1
	if text := t.field(record, columnClaims); text != "" {
		if n, err = strconv.Atoi(text); err != nil || n < 0 {
			return wrong(columnClaims, text, "a whole number, 0 or more")
		}
	}
	if n > t.most-len(t.claims) {
		return wrong(columnClaims, strconv.Itoa(n), fmt.Sprintf("no more than %d claims in all", t.most))
	}
	runs := t.runs
	if text := t.field(record, columnDuration); text != "" {
		d, err := parseSpan(text)
		if err != nil || d <= 0 {
			return wrong(columnDuration, text, "a duration above 0 such as 5m or 300, of a year at most")
		}
		runs = Exactly(d)
	}
	var over time.Duration
	if text := t.field(record, columnOver); text != "" {
		if over, err = parseSpan(text); err != nil {
			return wrong(columnOver, text, "a duration such as 60s or 60, of a year at most")
		}
	}
	if offset+over > MaxDuration {
		return wrong(columnTime, t.field(record, columnTime), "a trace of a year at most")
	}
	for range n {
		at := offset
		if over > 0 {
			at += time.Duration(t.random.Int64N(int64(over))).Round(time.Millisecond)
		}
		t.claims = append(t.claims, Claim{At: at, Runs: runs.draw(t.random), Group: t.field(record, columnGroup)})
	}
	return nil
}

// field returns the value of a column, or "" if the trace lacks the column.
func (t *tracer) field(record []string, column string) string {
	if i, ok := t.at[column]; ok {
		return strings.TrimSpace(record[i])
	}
	return ""
}

// when parses a time as an offset from the start of the run. If the first row has a calendar time, all rows must.
func (t *tracer) when(text string) (time.Duration, error) {
	const valid = "an offset such as 90s, 1h30m or 90, of a year at most, or an RFC 3339 time"
	at, notTime := time.Parse(time.RFC3339, text)
	switch {
	case notTime == nil && t.offset, notTime != nil && t.start != nil:
		return 0, wrong(columnTime, text, "offsets in all rows, or RFC 3339 times in all")
	case notTime == nil:
		if t.start == nil {
			t.start = &at
		}
		offset := at.Sub(*t.start)
		if offset < 0 {
			return 0, wrong(columnTime, text, "no time before the first row's, "+t.start.Format(time.RFC3339))
		}
		if offset > MaxDuration {
			return 0, wrong(columnTime, text, "a time within a year of the first row's, "+t.start.Format(time.RFC3339))
		}
		return offset, nil
	}
	offset, err := parseSpan(text)
	if err != nil {
		return 0, wrong(columnTime, text, valid)
	}
	t.offset = true
	return offset, nil
}

// parseSpan parses a duration such as 5m, or a number of seconds, from 0 to a year.
func parseSpan(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || !(seconds >= 0 && seconds <= MaxDuration.Seconds()) {
			return 0, fmt.Errorf("%q is no duration", text)
		}
		d = time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
	}
	if d < 0 || d > MaxDuration {
		return 0, fmt.Errorf("%q is not between 0 and a year", text)
	}
	return d, nil
}

func wrong(column, value, valid string) error {
	return fmt.Errorf("column %s: got %q, want %s", column, value, valid)
}
