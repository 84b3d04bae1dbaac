// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/history"
)

// A damaged history does not stop the worker, and is not deleted.
func TestADamagedHistoryIsPutAside(t *testing.T) {
	o := Options{history: historyOptions{dir: filepath.Join(t.TempDir(), "data"), retention: history.DefaultRetention, records: 10}}
	open := func() *history.History {
		t.Helper()
		registry := metrics.Registry
		metrics.Registry = prometheus.NewRegistry()
		defer func() { metrics.Registry = registry }()
		h, _, err := openHistory(t.Context(), o, nil, clock.RealClock{}, apitime.New(clock.RealClock{}), logr.Discard())
		must.Succeed(t, err)
		return h
	}
	keep := func(h *history.History, id string) {
		t.Helper()
		_, err := h.Keep(t.Context(), history.Record{Sandbox: &sandboxv1.Sandbox{Id: id}})
		must.Succeed(t, err)
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

// The file of a worker with a key tells nothing of its records, and is refused without one; it does tell without a key.
func TestTheHistoryIsEncrypted(t *testing.T) {
	const canary = "canary-7f3a"
	o := Options{history: historyOptions{dir: filepath.Join(t.TempDir(), "data"), retention: history.DefaultRetention, records: 10}}
	keep := func(id string) error {
		registry := metrics.Registry
		metrics.Registry = prometheus.NewRegistry()
		defer func() { metrics.Registry = registry }()
		h, rotation, err := openHistory(t.Context(), o, nil, clock.RealClock{}, apitime.New(clock.RealClock{}), logr.Discard())
		if err != nil {
			return err
		}
		if (rotation != nil) != (o.history.keyFile != "") {
			t.Errorf("the rotation is %v with keys %q", rotation, o.history.keyFile)
		}
		_, err = h.Keep(t.Context(), history.Record{Sandbox: &sandboxv1.Sandbox{Id: id, Metadata: map[string]string{"note": canary}}})
		for _, id := range []string{"a-east", id} {
			if !h.Has(id) {
				t.Errorf("the record of %s is gone", id)
			}
		}
		return errors.Join(err, h.Close())
	}
	tells := func() bool {
		data, err := os.ReadFile(filepath.Join(o.history.dir, "history.db"))
		must.Succeed(t, err)
		return bytes.Contains(data, []byte(canary))
	}
	if err := keep("a-east"); err != nil || !tells() {
		t.Fatalf("in a plain file the canary is there: %t, %v", tells(), err)
	}
	key, err := envelope.NewKey("a")
	must.Succeed(t, err)
	o.history.keyFile = filepath.Join(t.TempDir(), "keys.yaml")
	must.Succeed(t, os.WriteFile(o.history.keyFile, key, 0o600))
	if err := keep("b-east"); err != nil || tells() {
		t.Errorf("the file tells what is in it: %t, %v", tells(), err)
	}
	o.history.keyFile = ""
	if err := keep("c-east"); !errors.Is(err, store.ErrEncrypted) || !strings.Contains(err.Error(), "give --encryption-key-file its key") {
		t.Errorf("without the key: %v", err)
	}
}
