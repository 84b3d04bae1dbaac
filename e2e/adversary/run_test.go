// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"navix.sh/atoll/e2e/load"
)

// tries is how often a row is run while only the latency is too high, or while a busy machine let no attack start.
const tries = 3

// measured is the outcome of a row.
type measured struct {
	Role, Name string
	// PeakMiB is the most resident memory by program, and HubMiB the hub's.
	PeakMiB map[string]int64
	HubMiB  int64
	// HubCPUBefore and HubCPU are the hub's processor time, in milliseconds a second, before the attack and during it.
	HubCPUBefore, HubCPU float64
	// Goroutines are those after the row, by program.
	Goroutines map[string]float64
	// The honest claims' latency, in milliseconds.
	P50Before, P99Before, P50During, P99During float64
	// P99Direct is the p99 while the same is done at the API server, without hub and worker; 0: it was not measured.
	P99Direct             float64 `json:",omitempty"`
	Claims, Failed, Tries int
	Attack                report
	Wrong                 string `json:",omitempty"`
}

var (
	errSlow       = errors.New("honest callers were slowed")
	errNotArrived = errors.New("the attack did not arrive") // or not fast enough to reach a limit
)

// run carries out a row, and checks everything that it asserts.
func (w *world) run(ctx context.Context, r row) error {
	long := attackFor
	for try := 1; ; try++ {
		m, err := w.attack(ctx, r, long)
		m.Tries = try
		if errors.Is(err, errNotArrived) {
			long *= 4 // the machine gave the attacker no time to prepare
		}
		if (errors.Is(err, errSlow) || errors.Is(err, errNotArrived)) && try < tries {
			continue
		}
		if err != nil {
			m.Wrong = err.Error()
		}
		w.results.add(m)
		return err
	}
}

// attack carries out a row once; the attacker goes on for so long.
func (w *world) attack(ctx context.Context, r row, long time.Duration) (m measured, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	m = measured{Role: string(r.role), Name: r.name, PeakMiB: map[string]int64{}, Goroutines: map[string]float64{}}
	g, err := w.ground(ctx, r, long)
	if err != nil {
		return m, fmt.Errorf("preparing the attack: %w", err)
	}
	if r.prepare != nil {
		if err := r.prepare(ctx, w, g); err != nil {
			return m, fmt.Errorf("preparing the attack: %w", err)
		}
	}
	if err := w.warm(ctx); err != nil {
		return m, fmt.Errorf("before the attack: %w", err)
	}
	before, err := w.readStreams(ctx)
	if err != nil {
		return m, fmt.Errorf("before the attack: %w", err)
	}
	attacker, err := startAttacker(ctx, g)
	if err != nil {
		return m, err
	}
	var attackErr, peakErr, cpuErr error
	calm := w.hubCPU()
	honest, honestErr := w.beside(ctx, func() {
		for _, p := range w.programs() {
			peakErr = errors.Join(peakErr, p.ResetPeak())
		}
		var err error
		m.HubCPUBefore, err = calm()
		during := w.hubCPU()
		m.Attack, attackErr = attacker.attack()
		m.HubCPU, cpuErr = during()
		cpuErr = errors.Join(err, cpuErr)
	})
	m.note(honest)
	errs := []error{honestErr, attackErr, peakErr, cpuErr, m.wantMemory(w), w.unmoved(ctx, before), w.sings(ctx)}
	arrived := m.Attack.want(r)
	if r.check != nil {
		// What an attack has done is only there if it arrived. One that did not is tried again.
		if err := r.check(ctx, w, g); !errors.Is(arrived, errNotArrived) {
			errs = append(errs, err)
		}
	}
	if g.Cluster != "" {
		errs = append(errs, w.forget(ctx, g.Cluster))
	}
	for name := range w.programs() {
		n, err := w.SumMetrics(ctx, name, "go_goroutines ")
		errs = append(errs, err)
		m.Goroutines[name] = n
	}
	wrong := errors.Join(errs...)
	switch {
	case wrong != nil && arrived != nil && m.Attack.Attempts > 0: // it is not tried again
		return m, fmt.Errorf("%w; %s", wrong, arrived.Error())
	case wrong != nil || arrived != nil:
		return m, errors.Join(wrong, arrived)
	}
	err = w.wantSpeed(ctx, r, g, honest, &m)
	return m, err
}

// beside makes the claims of a row, and calls attack when it shall begin.
func (w *world) beside(ctx context.Context, attack func()) (samples, error) {
	var running sync.WaitGroup
	defer running.Wait()
	return w.honest(ctx, sync.OnceFunc(func() { running.Go(attack) }))
}

// hubCPU returns what returns the hub's processor time since, in milliseconds a second.
func (w *world) hubCPU() func() (float64, error) {
	hub, began := w.programs()["hub"], time.Now()
	was, err := hub.CPU()
	return func() (float64, error) {
		is, err2 := hub.CPU()
		return float64((is - was).Milliseconds()) / time.Since(began).Seconds(), errors.Join(err, err2)
	}
}

func milliseconds(latencies []time.Duration, q float64) float64 {
	return float64(load.Quantile(latencies, q).Round(100*time.Microsecond)) / float64(time.Millisecond)
}

func (m *measured) note(s samples) {
	m.P50Before, m.P99Before = milliseconds(s.calm, 0.5), milliseconds(s.calm, 0.99)
	m.P50During, m.P99During = milliseconds(s.during, 0.5), milliseconds(s.during, 0.99)
	m.Claims, m.Failed = len(s.during), s.failed
}

// wantMemory notes the peaks, and fails above the limit.
func (m *measured) wantMemory(w *world) error {
	var errs []error
	for name, p := range w.programs() {
		peak, err := p.Peak()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		m.PeakMiB[name] = peak >> 20
		if peak>>20 > *rssFlag {
			errs = append(errs, fmt.Errorf("I14: %s took %d MiB, want at most %d", name, peak>>20, *rssFlag))
		}
	}
	m.HubMiB = m.PeakMiB["hub"]
	return errors.Join(errs...)
}

func (s samples) wantSpeed() error {
	was, is := load.Quantile(s.calm, 0.99), load.Quantile(s.during, 0.99)
	if is <= max(2*was, *floorFlag) {
		return nil
	}
	return fmt.Errorf("I14: %w: p99 %s before the attack, %s during it, want at most twice that or %s", errSlow, was, is, *floorFlag)
}

// want checks that the attack took place and what the attacker was told.
func (r report) want(of row) error {
	var errs []error
	if r.Attempts == 0 || r.Bytes == 0 || len(r.Told) == 0 {
		errs = append(errs, fmt.Errorf("%w: %+v", errNotArrived, r))
	}
	heard := slices.Sorted(maps.Keys(r.Told))
	matched := func(pattern string) (out []string) {
		expression := regexp.MustCompile("^(?:" + pattern + ")$")
		for _, text := range heard {
			if expression.MatchString(text) {
				out = append(out, text)
			}
		}
		return out
	}
	for _, pattern := range of.told {
		if len(matched(pattern)) == 0 {
			errs = append(errs, fmt.Errorf("%w: the attacker was not told %q, but %q", errNotArrived, pattern, heard))
		}
	}
	for _, pattern := range of.never {
		if got := matched(pattern); len(got) > 0 {
			return fmt.Errorf("the attacker was told %q", got)
		}
	}
	return errors.Join(errs...)
}

// results are the outcomes of all rows so far.
type results struct {
	mu   sync.Mutex
	rows []measured
}

func (r *results) add(m measured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, m)
	fmt.Fprintf(os.Stderr, "adversary: %s/%s: hub %d MiB, CPU %.0f ms a second before, %.0f during, p99 %.1f ms before, %.1f ms during; %s\n",
		m.Role, m.Name, m.HubMiB, m.HubCPUBefore, m.HubCPU, m.P99Before, m.P99During, m.verdict())
}

func (m measured) verdict() string {
	if m.Wrong != "" {
		return "FAILED"
	}
	return "ok"
}

// direct is P99Direct, where it was measured.
func (m measured) direct() string {
	if m.P99Direct == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", m.P99Direct)
}

// told is what the attacker was told, most often first.
func (m measured) told() string {
	keys := slices.SortedFunc(maps.Keys(m.Attack.Told), func(a, b string) int { return int(m.Attack.Told[b] - m.Attack.Told[a]) })
	var out []string
	for _, k := range keys[:min(len(keys), 3)] {
		out = append(out, fmt.Sprintf("%.40s ×%d", k, m.Attack.Told[k]))
	}
	return strings.Join(out, ", ")
}

func (r *results) print(to io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "role\tattack\thub MiB\thub CPU before ms/s\tduring\tp50 before ms\tp99 before\tp50 during\tp99 during\tdirect\t"+
		"claims\tfailed\ttries\tattempts\tKiB sent\tthe attacker is told\tresult")
	for _, m := range r.rows {
		fmt.Fprintf(out, "%s\t%s\t%d\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f\t%.1f\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", m.Role, m.Name,
			m.HubMiB, m.HubCPUBefore, m.HubCPU, m.P50Before, m.P99Before, m.P50During, m.P99During, m.direct(),
			m.Claims, m.Failed, m.Tries, m.Attack.Attempts, m.Attack.Bytes>>10, m.told(), m.verdict())
	}
	_ = out.Flush()
}

func (r *results) write(path string) error {
	if path == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	text, err := json.MarshalIndent(r.rows, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the results: %w", err)
	}
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, append(text, '\n'), 0o644))
}
