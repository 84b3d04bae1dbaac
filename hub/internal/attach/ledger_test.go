// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// volume is a hub's two files.
type volume struct {
	*hub
	dir              string
	claims, registry *store.Bolt
}

// open begins on the files, and has the hub use their ledger.
func (v *volume) open() *recovery.State {
	v.Helper()
	var err1, err2 error
	v.claims, err1 = hubstate.Open(v.dir, hubstate.Claims)
	v.registry, err2 = hubstate.Open(v.dir, hubstate.Registry)
	v.must(errors.Join(err1, err2))
	state, err := recovery.Open(v.Context(), v.claims, v.registry, clock.RealClock{})
	v.must(err)
	v.server.opts.Ledger = recovery.Marks{State: state, Clock: clock.RealClock{}, Log: logr.Discard()}
	return state
}

func (v *volume) close() { v.must(errors.Join(v.claims.Close(), v.registry.Close())) }

// A volume was set back as a whole. The first cluster that remembers more begins the recovery, and every stream begins anew, so that
// each sends its key index.
func TestI2AWorkerNoticesThatTheStoreWasSetBack(t *testing.T) {
	v := &volume{hub: newHub(t, handler{}), dir: t.TempDir()}
	v.open()
	v.close()
	kinds := []hubstate.Kind{hubstate.Claims, hubstate.Registry}
	copies := filepath.Join(t.TempDir(), "copy")
	v.must(os.CopyFS(copies, os.DirFS(v.dir)))
	v.open()
	_, err := store.CompareAndSwap(t.Context(), v.claims, "claim/k", 0, []byte("v"))
	v.must(err)
	far := v.server.opts.Ledger.Mark()
	v.close()
	for _, kind := range kinds {
		content, err := os.ReadFile(kind.Path(copies))
		v.must(err)
		v.must(os.WriteFile(kind.Path(v.dir), content, 0o600))
	}
	state := v.open()
	t.Cleanup(v.close)

	east := v.attach("east")
	if state.Recovering() {
		t.Fatal("it recovers before a cluster has told")
	}
	west := v.dial("west")
	welcome := west.hello(&federationv1.Hello{Incarnation: 1, Ledger: far}).GetWelcome()
	if !state.Recovering() || welcome.GetLedger().GetId() == far.GetId() || welcome.GetLedger() == nil {
		t.Errorf("recovering: %t, the cluster is given %v", state.Recovering(), welcome.GetLedger())
	}
	for range east.frames { // until the stream ends
	}
}

// TestI2AStreamThatWasWelcomedBeforeALossBeginsAgain, also if it has not begun yet; because its worker sends only the keys of live
// sandboxes.
func TestI2AStreamThatWasWelcomedBeforeALossBeginsAgain(t *testing.T) {
	h := newHub(t, handler{})
	early := h.dial("a")
	if welcome := early.hello(&federationv1.Hello{Incarnation: 1}).GetWelcome(); welcome == nil || welcome.GetRecovering() {
		t.Fatalf("before the loss: %v", welcome)
	}
	h.recovering.Store(true)
	h.server.EndAll()
	early.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Begin{Begin: &federationv1.Begin{Incarnation: 1}}})
	early.read()
	h.eventually(func() error {
		select {
		case _, open := <-early.frames:
			return wait.If(!open, "a frame")
		default:
			return errors.New("the stream goes on")
		}
	})
	next := h.dial("a")
	if !next.hello(&federationv1.Hello{Incarnation: 1, Stream: 2}).GetWelcome().GetRecovering() {
		t.Error("the next stream is not asked for all keys")
	}
}

// TestI2AReportDuringALossDoesNotCount: the hub notices the loss before it has ended the stream.
func TestI2AReportDuringALossDoesNotCount(t *testing.T) {
	var indexes atomic.Int32
	h := newHub(t, handler{onKeys: func(string, []*federationv1.KeyHolder) { indexes.Add(1) }})
	w := h.attach("a", "demo")
	before := indexes.Load()
	h.recovering.Store(true)
	w.sendReport(&federationv1.Report{Sequence: 2, Last: true, Complete: true}, "demo")
	h.eventually(func() error {
		select {
		case _, open := <-w.frames:
			return wait.If(!open, "a frame")
		default:
			return errors.New("the stream goes on")
		}
	})
	if got := indexes.Load(); before != 1 || got != before {
		t.Errorf("I2: %d indexes were looked through, and %d before the loss; want one, before it", got, before)
	}
}
