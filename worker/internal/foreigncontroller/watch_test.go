// SPDX-License-Identifier: Apache-2.0

package foreigncontroller

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/foreigncontroller"
)

// world is a Watch with a clock of the test. The API server's clock, which times managed fields, is ten minutes off and stands
// still: nothing may be decided by it.
type world struct {
	*Watch
	t       *testing.T
	clock   *clocktesting.FakeClock
	events  *events.FakeRecorder
	changes int
}

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newWorld(t *testing.T) *world {
	w := &world{t: t, clock: clocktesting.NewFakeClock(noon), events: events.NewFakeRecorder(100)}
	var err error
	w.Watch, err = New(Options{Namespace: "atoll-system", Events: w.events, Clock: w.clock, Metrics: prometheus.NewRegistry(),
		Log: logr.Discard()})
	must.Succeed(t, err)
	w.OnChange(func() { w.changes++ })
	return w
}

// poolBy has a status that was written by these, one second after the other.
func poolBy(uid string, writers ...string) *v1alpha1.SandboxPool {
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)}}
	for i, writer := range writers {
		at := metav1.NewTime(noon.Add(10*time.Minute + time.Duration(i)*time.Second))
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: writer, Subresource: "status", Time: &at})
	}
	return p
}

func (w *world) expect(p *v1alpha1.SandboxPool, paused bool) {
	w.t.Helper()
	if got := w.Paused(p); got != paused {
		w.t.Errorf("%s at %s: paused=%t, want %t", p.Name, w.clock.Since(noon), got, paused)
	}
}

func TestOneWriter(t *testing.T) {
	w := newWorld(t)
	w.expect(poolBy("ours", "atoll-worker"), false)
	w.expect(poolBy("new"), false)
	w.expect(poolBy("moved over", "manager", "atoll-worker"), false)
	if w.changes != 0 || len(w.events.Events) != 0 || len(w.contested) != 0 {
		t.Errorf("%d changes, %d events, %d remembered", w.changes, len(w.events.Events), len(w.contested))
	}
}

// TestTwoWriters: while another controller writes we do not, and when it has stopped for two minutes we do.
func TestTwoWriters(t *testing.T) {
	w := newWorld(t)
	contested := poolBy("p", "atoll-worker", "manager")
	w.expect(contested, true)
	w.clock.Step(quiet - time.Second)
	w.expect(contested, true)
	again := poolBy("p", "atoll-worker", "x", "manager") // a second later
	again.ManagedFields = append(again.ManagedFields[:1], again.ManagedFields[2:]...)
	w.expect(again, true)
	w.clock.Step(quiet - time.Second)
	w.expect(again, true)
	if len(w.events.Events) != 1 {
		t.Errorf("%d events for one contest, want 1", len(w.events.Events))
	}
	w.count()
	if n := testutil.ToFloat64(w.objects.WithLabelValues(string(foreigncontroller.StatusWritten))); n != 1 {
		t.Errorf("the gauge says %v", n)
	}
	w.clock.Step(time.Second)
	w.expect(again, false)
	if len(w.events.Events) != 2 || w.changes != 2 {
		t.Errorf("%d events, %d changes, want 2 and 2", len(w.events.Events), w.changes)
	}
	w.count()
	if n := testutil.ToFloat64(w.objects.WithLabelValues(string(foreigncontroller.StatusWritten))); n != 0 {
		t.Errorf("the gauge says %v", n)
	}
	// We write; nothing is remembered. It writes back; we stop at once.
	w.expect(poolBy("p", "x", "manager", "atoll-worker"), false)
	if len(w.contested) != 0 {
		t.Error("it is still remembered")
	}
	w.expect(poolBy("p", "x", "x", "atoll-worker", "manager"), true)
}

func lease(renewed int) foreigncontroller.Lease {
	return foreigncontroller.Lease{Namespace: "old", Name: "1.agents.navix.sh", Holder: "x", Reason: foreigncontroller.LeaseHeld,
		Renewed: noon.Add(time.Duration(renewed) * time.Second), Duration: 15 * time.Second}
}

// TestLeaseOfAnother: everything is left alone while a lease is renewed, and for its duration after that, whatever times it has.
func TestLeaseOfAnother(t *testing.T) {
	w := newWorld(t)
	ours := poolBy("p", "atoll-worker")
	w.expect(ours, false)
	for i := range 10 {
		w.see([]foreigncontroller.Lease{lease(i)})
		w.expect(ours, true)
		w.clock.Step(10 * time.Second)
	}
	w.see([]foreigncontroller.Lease{lease(9)}) // not renewed any more
	w.expect(ours, true)
	w.clock.Step(5 * time.Second)
	w.see([]foreigncontroller.Lease{lease(9)})
	w.expect(ours, false)
	if w.changes < 2 || len(w.contested) != 0 {
		t.Errorf("%d changes, %d remembered", w.changes, len(w.contested))
	}
	w.see([]foreigncontroller.Lease{lease(10)})
	w.expect(ours, true)
	w.see(nil) // released
	w.expect(ours, false)
}

// TestForgotten: objects that were deleted while they were contested are not remembered forever (I10).
func TestForgotten(t *testing.T) {
	w := newWorld(t)
	for i := range 1000 {
		w.expect(poolBy(fmt.Sprint(i), "manager"), true)
		for len(w.events.Events) > 0 {
			<-w.events.Events
		}
	}
	w.clock.Step(forgotten + time.Second)
	w.count()
	if len(w.contested) != 0 {
		t.Errorf("%d are remembered", len(w.contested))
	}
}

func TestNothingAsked(t *testing.T) {
	var w *Watch
	if w.PausedPool(poolBy("p", "manager")) {
		t.Error("a worker without a Watch holds back")
	}
}
