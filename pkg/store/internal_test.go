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
	"go.etcd.io/bbolt"
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

// A change and a conflict do not affect the other requests of their group. A change that fails fails the whole group.
func TestAGroupHasChangesAndConflicts(t *testing.T) {
	s, err := OpenBolt(filepath.Join(t.TempDir(), "s.db"), "test")
	must.Succeed(t, err)
	defer func() { must.Succeed(t, s.Close()) }()
	put := func(key string, conditions ...Condition) *request {
		return &request{txn: Txn{If: conditions, Puts: []Put{{Key: key}}}, done: make(chan result, 1)}
	}
	change := func(err error) *request {
		return &request{change: func(*bbolt.Bucket) error { return err }, done: make(chan result, 1)}
	}
	cannot := errors.New("cannot")
	for name, tc := range map[string]struct {
		group []*request
		want  []error
	}{
		"works": {
			[]*request{put("a"), change(nil), put("b"), put("c", Condition{Key: "a", Revision: 99}), put("d")},
			[]error{nil, nil, nil, ErrConflict, nil},
		},
		"fails": {[]*request{put("e"), change(cannot), put("f")}, []error{cannot, cannot, cannot}},
	} {
		s.committer.write(tc.group)
		for i, r := range tc.group {
			got := <-r.done
			if !errors.Is(got.err, tc.want[i]) {
				t.Errorf("%s: request %d has %v, want %v", name, i, got.err, tc.want[i])
			}
			if r.change != nil {
				continue
			}
			if e, ok, err := s.Get(t.Context(), r.txn.Puts[0].Key); err != nil || ok != (tc.want[i] == nil) || e.Revision != got.revision {
				t.Errorf("%s: request %d at revision %d left %+v %t %v", name, i, got.revision, e, ok, err)
			}
		}
	}
}

// A draft gets its name by a link. A draft that cannot be linked is renamed; a directory stands for a file system without links.
func TestADraftIsPublished(t *testing.T) {
	for name, create := range map[string]func(path string) error{
		"a file":                func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"what cannot be linked": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		path := filepath.Join(t.TempDir(), "s.db")
		must.Succeed(t, create(draftOf(path)))
		err := publish(draftOf(path), path)
		_, there := os.Lstat(path)
		_, draft := os.Lstat(draftOf(path))
		if err != nil || there != nil || !errors.Is(draft, os.ErrNotExist) {
			t.Errorf("%s: %v; the file: %v, its draft: %v", name, err, there, draft)
		}
	}
}

// A draft that is not the file belongs to another process.
func TestADraftOfAnotherStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s, err := OpenBolt(path, "test")
	must.Succeed(t, err)
	must.Succeed(t, s.Close())
	must.Succeed(t, os.WriteFile(draftOf(path), []byte("another"), 0o600))
	s, err = OpenBolt(path, "test")
	must.Succeed(t, err)
	must.Succeed(t, s.Close())
	if content, err := os.ReadFile(draftOf(path)); err != nil || string(content) != "another" {
		t.Errorf("the draft is %q, %v", content, err)
	}
}

// An error of the connection is ErrUnavailable. A refusal of etcd is not, and keeps its error.
func TestWhatIsAnErrorOfEtcd(t *testing.T) {
	for name, tc := range map[string]struct {
		err, want   error
		unavailable bool
	}{
		"too many changes": {rpctypes.ErrTooManyOps, ErrTooLarge, false},
		"too many bytes":   {rpctypes.ErrRequestTooLarge, ErrTooLarge, false},
		"no space":         {rpctypes.ErrNoSpace, rpctypes.ErrNoSpace, false},
		"no permission":    {rpctypes.ErrPermissionDenied, rpctypes.ErrPermissionDenied, false},
		"a wrong password": {rpctypes.ErrAuthFailed, rpctypes.ErrAuthFailed, false},
		"compacted":        {rpctypes.ErrCompacted, rpctypes.ErrCompacted, false},
		"no leader":        {rpctypes.ErrNoLeader, rpctypes.ErrNoLeader, true},
		"etcd's own time":  {rpctypes.ErrTimeout, rpctypes.ErrTimeout, true},
		"no time":          {context.DeadlineExceeded, ErrUnavailable, true},
		"no connection":    {errors.New("connection refused"), ErrUnavailable, true},
	} {
		if err := explain(tc.err); !errors.Is(err, tc.want) || errors.Is(err, ErrUnavailable) != tc.unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The limits are those of etcd, minus one change and 16 KiB. Each operation counts 160 bytes more than its key and its value.
func TestWhatIsTooLargeForEtcd(t *testing.T) {
	some := func(conditions, puts, deletes, size int) (txn Txn) {
		for range conditions {
			txn.If = append(txn.If, Condition{Key: "key"})
		}
		for range puts {
			txn.Puts = append(txn.Puts, Put{Key: "key", Value: make([]byte, size)})
		}
		for range deletes {
			txn.Deletes = append(txn.Deletes, "key")
		}
		return txn
	}
	if got, want := sizeOf(some(2, 3, 4, 1000)), 2*163+3*1163+4*163; got != want {
		t.Errorf("the size is %d, want %d", got, want)
	}
	const most = 1_556_480 // 1536 KiB minus 16 KiB
	for name, tc := range map[string]struct {
		txn  Txn
		fits bool
	}{
		"127 changes":          {some(0, 100, 27, 0), true},
		"128 changes":          {some(0, 100, 28, 0), false},
		"127 conditions":       {some(127, 0, 1, 0), true},
		"128 conditions":       {some(128, 0, 1, 0), false},
		"as many bytes as fit": {some(0, 1, 0, most-163), true},
		"one byte more":        {some(0, 1, 0, most-162), false},
	} {
		if err := fits(tc.txn); (err == nil) != tc.fits || err != nil && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A read that may be stale leaves half of its caller's time for the member that responds.
func TestEtcdCallsHaveHalfOfTheTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	half, end := halfOf(ctx)
	defer end()
	deadline, ok := half.Deadline()
	if left := time.Until(deadline); !ok || left > 30*time.Minute || left < 29*time.Minute {
		t.Errorf("of an hour %s are left, %t", left, ok)
	}
	half, end = halfOf(t.Context())
	defer end()
	if deadline, ok := half.Deadline(); ok {
		t.Errorf("without a deadline there is one at %s", deadline)
	}
}

// A group has no more than fits into one transaction of etcd, and no key twice.
func TestWhatIsAGroupForEtcd(t *testing.T) {
	put := func(key string) *request { return &request{txn: Txn{Puts: []Put{{Key: key}}}} }
	var g group
	for i := range maxOps {
		if !g.add(put(fmt.Sprint(i))) {
			t.Fatalf("the request after %d was refused", i)
		}
	}
	if g.add(put("more")) || len(g.requests) != maxOps || fits(g.txn) != nil {
		t.Errorf("%d requests are in a group: %v", len(g.requests), fits(g.txn))
	}
	var twice group
	if !twice.add(put("k")) || twice.add(put("k")) {
		t.Error("a key is in a group twice")
	}
}

// Every lazy request that waits when the store is closed gets a result.
func TestEtcdCloseEndsLazyRequests(t *testing.T) {
	l := &lazies{
		store:    &Etcd{closed: true, metrics: newMetrics("test")},
		requests: make(chan *request, maxOps), quit: make(chan struct{}), done: make(chan struct{}),
	}
	var waiting []*request
	for i := range 100 { // run may take some of them before it sees that quit is closed
		r := &request{txn: Txn{Puts: []Put{{Key: fmt.Sprint(i)}}}, done: make(chan result, 1)}
		waiting = append(waiting, r)
		l.requests <- r
	}
	close(l.quit)
	l.run()
	for i, r := range waiting {
		if len(r.done) != 1 {
			t.Fatalf("request %d has no result", i)
		}
		if got := <-r.done; !errors.Is(got.err, ErrClosed) {
			t.Errorf("request %d: %v", i, got.err)
		}
	}
}
