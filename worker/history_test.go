// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/history"
)

// A damaged history does not stop the worker, and is not deleted.
func TestADamagedHistoryIsPutAside(t *testing.T) {
	o := options{history: historyOptions{dir: filepath.Join(t.TempDir(), "data"), retention: history.DefaultRetention, records: 10}}
	open := func() *history.History {
		t.Helper()
		registry := metrics.Registry
		metrics.Registry = prometheus.NewRegistry()
		defer func() { metrics.Registry = registry }()
		h, err := openHistory(t.Context(), o, clock.RealClock{}, apitime.New(clock.RealClock{}), logr.Discard())
		must.Succeed(t, err)
		return h
	}
	keep := func(h *history.History, id string) {
		t.Helper()
		if _, err := h.Keep(t.Context(), history.Record{Sandbox: &sandboxv1.Sandbox{Id: id}}); err != nil {
			t.Fatal(err)
		}
	}
	h := open()
	keep(h, "a-east")
	must.Succeed(t, h.Close())
	h = open()
	if !h.Has("a-east") {
		t.Error("the record is gone")
	}
	must.Succeed(t, h.Close())
	path := filepath.Join(o.history.dir, "history.db")
	content, err := os.ReadFile(path)
	must.Succeed(t, err)
	for i := range content[:len(content)/2] {
		content[i] = 0xff
	}
	must.Succeed(t, os.WriteFile(path, content, 0o600))
	h = open()
	keep(h, "b-east")
	if h.Len() != 1 {
		t.Errorf("there are %d records", h.Len())
	}
	must.Succeed(t, h.Close())
	if aside, err := filepath.Glob(path + ".damaged-*"); err != nil || len(aside) != 1 {
		t.Errorf("put aside: %v, %v", aside, err)
	}
}
