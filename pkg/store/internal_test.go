// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"navix.sh/atoll/e2e/must"
)

// TestAGroupIsWhatWaits, up to its bound.
func TestAGroupIsWhatWaits(t *testing.T) {
	c := &committer{requests: make(chan *request, 2*maxGroup)}
	for waiting, want := range map[int]int{0: 1, 3: 4, maxGroup - 1: maxGroup, maxGroup + 5: maxGroup} {
		for range waiting {
			c.requests <- &request{}
		}
		if got := len(c.gather([]*request{{}})); got != want || len(c.requests) != waiting+1-want {
			t.Errorf("with %d that wait there are %d in a group, want %d", waiting, got, want)
		}
		for len(c.requests) > 0 {
			<-c.requests
		}
	}
}

// TestADraftThatWasCutOffIsBegunAnew, wherever it was.
func TestADraftThatWasCutOffIsBegunAnew(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "s.db")
	draft, err := openDraft(whole)
	must.Succeed(t, err)
	must.Succeed(t, draft.Close())
	content, err := os.ReadFile(whole)
	must.Succeed(t, err)
	for size := 0; size <= len(content); size += 1024 {
		path := filepath.Join(t.TempDir(), "s.db")
		must.Succeed(t, os.WriteFile(path+".new", content[:size], 0o600))
		s, err := OpenBolt(path, "test")
		if err != nil {
			t.Errorf("cut off at %d of %d: %v", size, len(content), err)
			continue
		}
		must.Succeed(t, s.Close())
	}
}

// Of two processes that start on one directory the second takes the first one's file, from which that may serve already.
func TestASecondFirstStartReplacesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	first, err := OpenBolt(path, "test")
	must.Succeed(t, err)
	defer first.Close()
	before, err := os.Stat(path)
	must.Succeed(t, err)
	must.Succeed(t, (layout{kind: "test"}).create(path)) // of a process that has found no file
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was replaced: %v", err)
	}
	if _, err := os.Lstat(draftOf(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the second one's draft is still there: %v", err)
	}
}

// A process that dies between the link and the removal of its draft leaves a second name, which the next start removes.
func TestADraftThatIsTheFileGoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	for range 2 {
		s, err := OpenBolt(path, "test")
		must.Succeed(t, err)
		must.Succeed(t, s.Close())
		if _, err := os.Lstat(draftOf(path)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a draft is there: %v", err)
		}
		must.Succeed(t, os.Link(path, draftOf(path)))
	}
}

func TestAFileThatCannotHaveItsNameIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	must.Succeed(t, os.MkdirAll(filepath.Join(path, "full"), 0o700))
	if err := (layout{kind: "test"}).create(path); err == nil {
		t.Error("a directory was taken for the file")
	}
}

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

// The end of a caller's time is a failure of etcd once etcd has had time to respond. Then a success ends it.
func TestWhatIsAFailureOfEtcd(t *testing.T) {
	ended, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	left, leave := context.WithCancel(t.Context())
	leave()
	for name, tc := range map[string]struct {
		ctx    context.Context
		waited time.Duration
		err    error
		fails  bool
		want   error
	}{
		"the caller's time":           {ended, failsAfter, context.DeadlineExceeded, true, context.DeadlineExceeded},
		"a caller with too little":    {ended, 0, context.DeadlineExceeded, false, context.DeadlineExceeded},
		"the caller leaves":           {left, time.Minute, context.Canceled, false, context.Canceled},
		"the call's own time":         {t.Context(), callTimeout, context.DeadlineExceeded, true, ErrUnavailable},
		"a part of a caller's little": {t.Context(), 0, context.DeadlineExceeded, false, ErrUnavailable},
		"a refusal":                   {t.Context(), 0, rpctypes.ErrNoSpace, true, rpctypes.ErrNoSpace},
	} {
		e := &Etcd{}
		err := e.responded(tc.ctx, time.Now().Add(-tc.waited), tc.err)
		if failed := e.failure.Load() != nil; failed != tc.fails || !errors.Is(err, tc.want) {
			t.Errorf("%s: failed %t, %v", name, failed, err)
		}
		if err := e.responded(tc.ctx, time.Now(), nil); err != nil || e.failure.Load() != nil {
			t.Errorf("%s, and then a success: %v, %v", name, err, e.failure.Load())
		}
	}
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
