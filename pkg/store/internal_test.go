// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"navix.sh/atoll/e2e/must"
)

func TestMetrics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s, err := OpenBolt(path, "test")
	must.Succeed(t, err)
	registry := prometheus.NewRegistry()
	must.Succeed(t, s.Register(registry))
	for _, revision := range []uint64{0, 0, 7} { // the second and the third meet another revision
		_, _ = CompareAndSwap(t.Context(), s, "k", revision, nil)
	}
	values := func() map[string]float64 {
		families, err := registry.Gather()
		must.Succeed(t, err)
		out := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				out[fmt.Sprint(f.GetName(), label(m, "result"))] = m.GetCounter().GetValue() + m.GetGauge().GetValue() +
					float64(m.GetHistogram().GetSampleCount())
			}
		}
		return out
	}
	info, err := os.Stat(path)
	must.Succeed(t, err)
	got := values()
	for name, want := range map[string]float64{
		"atoll_hub_store_transactions_total committed": 1, "atoll_hub_store_transactions_total conflict": 2,
		"atoll_hub_store_batch_transactions": 3, "atoll_hub_store_file_bytes": float64(info.Size()),
		"atoll_hub_store_available": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v, of %v", name, got[name], want, got)
		}
	}
	must.Succeed(t, os.Remove(path))
	if size := values()["atoll_hub_store_file_bytes"]; size != 0 {
		t.Errorf("a file that was taken away has %v bytes", size)
	}
	must.Succeed(t, s.Close())
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return " " + l.GetValue()
		}
	}
	return ""
}

// A process that has waited for the lock of a file which was replaced meanwhile (Rewrite, a restore) does not go on with the old one.
func TestAFileThatWasReplacedIsNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	for _, name := range []string{path, path + ".new"} {
		must.Succeed(t, os.WriteFile(name, nil, 0o600))
	}
	file, err := os.Open(path)
	must.Succeed(t, err)
	defer func() { _ = file.Close() }()
	if err := stillAt(path, file); err != nil {
		t.Errorf("before: %v", err)
	}
	must.Succeed(t, os.Rename(path+".new", path))
	if err := stillAt(path, file); !errors.Is(err, ErrLocked) {
		t.Errorf("after: %v, want %v, so that the caller tries again", err, ErrLocked)
	}
}

// A Memory keeps the last changes for watches. A watch from an earlier revision ends with ErrCompacted.
func TestMemoryKeepsTheLastChanges(t *testing.T) {
	m := NewMemory()
	const last = 2 * maxLog
	for range last {
		_, err := m.Commit(t.Context(), Txn{Puts: []Put{{Key: "k"}}})
		must.Succeed(t, err)
	}
	watch := func(after uint64) (seen int, err error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err = m.Watch(ctx, "", after, func(events []Event) {
			if seen += len(events); events[0].Revision == last {
				cancel()
			}
		})
		return seen, err
	}
	const first = last - maxLog + 1 // the revision of the first change that is kept
	if _, err := watch(first - 1); !errors.Is(err, ErrCompacted) {
		t.Errorf("from before what is kept: %v", err)
	}
	if seen, err := watch(first); seen != maxLog-1 || !errors.Is(err, context.Canceled) {
		t.Errorf("from the first that is kept: %d changes, %v", seen, err)
	}
}
