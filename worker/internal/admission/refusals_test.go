// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/must"
)

var full = Refuse(0, QuotaExceeded, "full", 0)

func TestRefusalsHoldLongerAndLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pool := NewRefusals(clock.RealClock{}), types.NamespacedName{Name: "p"}
		for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			want *= time.Second
			if news := r.Refused(pool, "s", full, false); news != (i == 0) {
				t.Errorf("refusal %d: news %t", i, news)
			}
			hold := r.Hold(pool, "s")
			if hold > want || hold < want*8/10 {
				t.Errorf("refusal %d holds for %s, want %s or up to a fifth less", i, hold, want)
			}
			if other := r.Hold(pool, "other"); other != 0 {
				t.Errorf("other Pods are held for %s", other)
			}
			time.Sleep(hold)
			if r.Hold(pool, "s") != 0 {
				t.Error("the hold does not end")
			}
			if last, ok := r.Last(pool); !ok || last.Reason != QuotaExceeded || last.Message != "full" || last.Age != hold {
				t.Errorf("the latest refusal: %+v, %t", last, ok)
			}
		}
		if news := r.Refused(pool, "s", full, true); news || r.Hold(pool, "s") > time.Second {
			t.Errorf("after progress: news %t, hold %s", news, r.Hold(pool, "s"))
		}
		if !r.Refused(pool, "s", Refuse(0, InvalidSpec, "bad", 40*time.Second), false) || r.Hold(pool, "s") < 30*time.Second {
			t.Errorf("another cause, with a time: hold %s", r.Hold(pool, "s"))
		}
		if !r.Refused(pool, "new", full, false) || r.Hold(pool, "new") > time.Second {
			t.Errorf("another subject: hold %s", r.Hold(pool, "new"))
		}
		r.Refused(pool, "s", Refuse(0, QuotaExceeded, "full", time.Hour), false)
		if hold := r.Hold(pool, "s"); hold > time.Minute {
			t.Errorf("a plugin holds for %s", hold)
		}
		r.Admitted(pool)
		if _, ok := r.Last(pool); ok || len(r.pools) != 0 {
			t.Error("a pool that gets its Pods is still refused")
		}
	})
}

// TestRefusedPoolsDoNotGrow: and may again, once a Pod was admitted, or some time has passed without the pool asking.
func TestRefusedPoolsDoNotGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pool := NewRefusals(clock.RealClock{}), types.NamespacedName{Namespace: "ns", Name: "p"}
		grow := func() Verdict {
			v, err := New(clock.RealClock{}, r).PreUpdatePool(t.Context(), change(3, 9))
			must.Succeed(t, err)
			return v
		}
		if v := grow(); !v.Whole(9) {
			t.Errorf("never refused: %+v", v)
		}
		r.Refused(types.NamespacedName{Namespace: "ns", Name: "other"}, "s", full, false)
		if v := grow(); !v.Whole(9) {
			t.Errorf("another pool was refused: %+v", v)
		}
		r.Refused(pool, "s", full, false)
		if v := grow(); v.Replicas != 3 || v.Reason != QuotaExceeded || v.Message != "full" || v.RetryAfter < time.Second {
			t.Errorf("refused: %+v", v)
		}
		time.Sleep(refusalForgotten - time.Second)
		if v := grow(); v.Replicas != 3 {
			t.Errorf("later: %+v", v)
		}
		time.Sleep(2 * time.Second)
		if v := grow(); !v.Whole(9) {
			t.Errorf("long after: %+v", v)
		}
		r.Refused(pool, "s", full, false)
		r.Admitted(pool)
		if v := grow(); !v.Whole(9) {
			t.Errorf("admitted since: %+v", v)
		}
	})
}

func TestNilRefusals(t *testing.T) {
	var r *Refusals
	pool := types.NamespacedName{Name: "p"}
	r.Refused(pool, "s", full, false)
	r.Admitted(pool)
	if _, ok := r.Last(pool); ok || r.Hold(pool, "s") != 0 {
		t.Error("nothing remembers something")
	}
}
