// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"navix.sh/atoll/e2e/must"
)

func written(t *testing.T, b *bench) (doc document) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(b.outDir, "latest.json"))
	if err == nil {
		err = json.Unmarshal(data, &doc)
	}
	must.Succeed(t, err)
	return doc
}

func resultNames(d document) string {
	var names []string
	for _, r := range d.Results {
		names = append(names, r.Part+" "+r.Name)
	}
	return strings.Join(names, ", ")
}

// A part that fails takes nothing along: neither what it has measured before, nor the other parts, nor what they wrote.
func TestAPartFailsAlone(t *testing.T) {
	out := &bytes.Buffer{}
	b := &bench{size: fullSize, outDir: t.TempDir(), out: out}
	closed := 0
	figure := func(name string) result { return count(name, "1", 1, 1) }
	err := b.run(t.Context(), []part{
		{"first", "group", time.Minute, func(b *bench, _ context.Context, add func(...result)) error {
			b.closers = append(b.closers, func() error { closed++; return nil })
			add(figure("a").exactly(1))
			return nil
		}},
		{"fails", "group", time.Minute, func(_ *bench, _ context.Context, add func(...result)) error {
			add(figure("b"))
			return errors.New("reading metrics: unknown")
		}},
		{"next", "group", time.Minute, func(b *bench, _ context.Context, add func(...result)) error {
			if got := resultNames(written(t, b)); got != "first a, fails b" || closed != 1 {
				t.Errorf("while the third part runs there are %q, and %d groups ended", got, closed)
			}
			add(figure("c"), result{Name: "no figure", Value: math.NaN()})
			return nil
		}},
		{"hangs", "", time.Millisecond, func(_ *bench, ctx context.Context, _ func(...result)) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}},
		{"panics", "", time.Minute, func(*bench, context.Context, func(...result)) error { panic("no map") }},
		{"misses", "", time.Minute, func(_ *bench, _ context.Context, add func(...result)) error {
			add(figure("d").exactly(2))
			return nil
		}},
	})
	doc := written(t, b)
	if got := resultNames(doc); got != "first a, fails b, next c, misses d" {
		t.Errorf("results: %s", got)
	}
	want := []string{
		"part fails failed: reading metrics: unknown", "part next failed: no figure: NaN", "part hangs failed: it took longer than 1ms",
		"part panics failed: panic: no map", "missed misses: d",
	}
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("the bench ends with %v, which lacks %q", err, w)
		}
	}
	if !strings.Contains(out.String(), "fails FAILED: reading metrics: unknown") {
		t.Errorf("printed:\n%s", out)
	}
}

// A part that others' load has spoiled, and a quick run, judge counts and nothing else, and say so.
func TestWhatIsJudged(t *testing.T) {
	missed := []result{measured("slow", "ms", []float64{2}).atMost(1), count("writes", "1", 2, 1).exactly(1)}
	for name, tc := range map[string]struct {
		quick, spoiled bool
		says, lacks    []string
	}{
		"full": {says: []string{"missed p: slow", "missed p: writes"}, lacks: []string{"SPOILED", "QUICK", "quick"}},
		"spoiled": {spoiled: true, says: []string{"SPOILED p: others took 0.90 processors, most of it cc", "MISSED, spoiled", "missed p: writes"},
			lacks: []string{"missed p: slow"}},
		"quick": {quick: true, says: []string{"QUICK", "MISSED, quick", "missed p: writes"}, lacks: []string{"missed p: slow"}},
	} {
		out := &bytes.Buffer{}
		d := document{Quick: tc.quick}
		d.end(partResult{Name: "p", Spoiled: tc.spoiled, OthersCPUs: 0.9, OthersMost: "cc"}, missed)
		d.print(out)
		all := out.String()
		out.Reset()
		all = all + d.verdict(out).Error() + out.String()
		if !tc.spoiled {
			all = strings.ReplaceAll(all, "others took", "")
		}
		for _, w := range tc.says {
			if !strings.Contains(all, w) {
				t.Errorf("%s lacks %q:\n%s", name, w, all)
			}
		}
		for _, w := range tc.lacks {
			if strings.Contains(all, w) {
				t.Errorf("%s says %q:\n%s", name, w, all)
			}
		}
		if d.Results[0].Quick != tc.quick || d.Results[0].Judged == (tc.quick || tc.spoiled) || !d.Results[1].Judged {
			t.Errorf("%s: %+v", name, d.Results)
		}
	}
}

func TestLoadOfOthers(t *testing.T) {
	const self = 100
	process := func(pid, parent int, name string, user, ended int) procfs.ProcStat {
		return procfs.ProcStat{PID: pid, PPID: parent, Comm: name, UTime: uint(user), CUTime: ended}
	}
	before := split([]procfs.ProcStat{
		process(1, 0, "init", 100, 0), process(2, 0, "kthreadd", 0, 0), process(3, 2, "kworker", 0, 0), process(50, 1, "make", 0, 0),
		process(self, 50, "bench", 100, 0), process(101, self, "go", 0, 0), process(102, 101, "fleet.test", 100, 0), process(60, 1, "cc", 700, 0),
	}, self)
	after := split([]procfs.ProcStat{
		// 60 has ended, which its parent knows; 61 is new.
		process(1, 0, "init", 100, 900), process(2, 0, "kthreadd", 0, 0), process(3, 2, "kworker", 5000, 0), process(50, 1, "make", 0, 0),
		// 102 has ended, which its parent knows.
		process(self, 50, "bench", 400, 0), process(101, self, "go", 0, 600), process(61, 1, "cc", 300, 0),
	}, self)
	taken := after.since(before)
	if ours := sum(taken.ours); math.Abs(ours-8) > 1e-9 || taken.ours[itself] != 3 {
		t.Errorf("ours took %.2f s: %v", ours, taken.ours)
	}
	var quiet, busy partResult
	quiet.use(taken, time.Hour, 2)
	busy.use(taken, 10*time.Second, 2)
	if quiet.Spoiled || !busy.Spoiled || math.Abs(busy.OthersCPUs-0.5) > 1e-9 || busy.OthersMost != "init" {
		t.Errorf("others took 5 s: of an hour %+v, of ten seconds %+v", quiet, busy)
	}
}

func TestChoose(t *testing.T) {
	for only, want := range map[string]int{"": len(parts) - 1, "link": 7, "link,routing": 8, "ceiling": 1, "claims": 4, "big": 3} {
		if got, err := choose(only, ""); err != nil || len(got) != want {
			t.Errorf("-only %s: %d parts, %v", only, len(got), err)
		}
	}
	if got, err := choose("", "checkout"); err != nil || len(got) != len(parts) {
		t.Errorf("-peer checkout: %d parts, %v", len(got), err)
	}
	if _, err := choose("peer", ""); err == nil || !strings.Contains(err.Error(), "-peer") {
		t.Errorf("-only peer: %v", err)
	}
	if _, err := choose("claim", ""); err == nil || !strings.Contains(err.Error(), `"claim"`) ||
		!strings.Contains(err.Error(), "claims, ceiling") {
		t.Errorf("-only claim: %v", err)
	}
}
