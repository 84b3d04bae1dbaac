// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"navix.sh/atoll/api/v1alpha1"
)

func TestOutlooksTellOfEdges(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	o, told := newOutlooks(clk), 0
	o.onChange(func(types.NamespacedName) { told++ })
	key := types.NamespacedName{Name: "a"}
	for i, step := range []struct {
		grow      bool
		saturated time.Duration
		told      int
	}{
		{true, 0, 1}, {true, 0, 1}, {false, time.Minute, 2}, {false, 50 * time.Second, 2}, {false, 0, 3}, {true, 0, 4},
	} {
		o.set(key, step.grow, step.saturated)
		if grow, left := o.get(key); grow != step.grow || left != step.saturated || told != step.told {
			t.Errorf("step %d: can grow %v, saturated for %s, told %d times", i, grow, left, told)
		}
	}
	o.set(key, false, time.Minute)
	clk.SetTime(clk.Now().Add(40 * time.Second))
	if _, left := o.get(key); left != 20*time.Second {
		t.Errorf("after 40 s it is saturated for %s", left)
	}
	clk.SetTime(clk.Now().Add(time.Hour))
	if _, left := o.get(key); left != 0 {
		t.Errorf("after an hour it is saturated for %s", left)
	}
	o.forget(key)
	if o.forget(key); told != 6 || len(o.pools) > 0 {
		t.Errorf("told %d times, %d are left", told, len(o.pools))
	}
}

// jumping is an API server's clock that can be set.
type jumping struct {
	now     time.Time
	stepped time.Duration // forward, once
}

func (j *jumping) Now() time.Time { return j.now }

func (j *jumping) Since(t time.Time) time.Duration {
	age := max(0, j.now.Sub(t))
	if age > j.stepped {
		age -= j.stepped
	}
	return age
}

// I11: a step of the API server's clock moves nothing, and neither does a local one that is off.
func TestSteadyTimeDoesNotStep(t *testing.T) {
	local := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)) // off by decades
	server := &jumping{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	s := &steady{local: local, times: server}
	start := s.now()
	server.now = server.now.Add(-10 * time.Minute)
	local.SetTime(local.Now().Add(3 * time.Second))
	if got := s.now(); !start.Equal(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)) || got.Sub(start) != 3*time.Second {
		t.Errorf("began at %s, and 3 s later it is %s", start, got)
	}
}

// I11: the next leader goes on where this one was, though the API server's clock was stepped under this one, and what is
// written is what that clock shows.
func TestTimesAreWrittenByTheServersClock(t *testing.T) {
	const minute = time.Minute
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	local := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	server := &jumping{now: noon}
	s := &steady{local: local, times: server}
	pass := func(d time.Duration) {
		local.SetTime(local.Now().Add(d))
		server.now = server.now.Add(d)
	}
	s.now()
	pass(minute)
	server.now = server.now.Add(10 * minute)
	server.stepped = 10 * minute
	if got := s.written(s.now()); !got.Equal(noon.Add(11 * minute)) {
		t.Errorf("written at %s, the clock shows %s", got, server.now)
	}
	if got := s.written(noon); !got.Equal(noon.Add(10 * minute)) {
		t.Errorf("%s is written as %s, which it was by the clock that there is now", noon, got)
	}
	server.now = server.now.Add(time.Second) // its header has whole seconds
	if got := s.written(noon); !got.Equal(noon.Add(10 * minute)) {
		t.Errorf("a time that is written was moved to %s", got)
	}
	next := &steady{local: local, times: server}
	for at, want := range map[time.Duration]time.Duration{11 * minute: 11 * minute, 0: 10 * minute, time.Hour: 11*minute + time.Second} {
		if got := next.from(noon.Add(at)); !got.Equal(noon.Add(want)) {
			t.Errorf("what was written at noon and %s was at %s, want %s", at, got, noon.Add(want))
		}
	}
}

func TestMemoryIsBoundedByPools(t *testing.T) {
	same := func(t time.Time) time.Time { return t }
	m := newMemory()
	env, a, b := types.NamespacedName{Name: "e"}, types.NamespacedName{Name: "a"}, types.NamespacedName{Name: "b"}
	first := &v1alpha1.SandboxPool{}
	first.UID = "1"
	if known := m.of(a, env, first, same); known != m.of(a, env, first, same) {
		t.Error("a pool is forgotten between two looks")
	}
	again := &v1alpha1.SandboxPool{}
	again.UID = "2"
	if m.of(a, env, first, same) == m.of(a, env, again, same) {
		t.Error("a pool made anew has what was remembered of the old one")
	}
	m.of(b, env, first, same)
	m.wrote(env, 7)
	if !m.behind(env, 6) || m.behind(env, 7) {
		t.Error("an Env is compared wrongly with our last write")
	}
	m.keep(env, map[types.NamespacedName]bool{a: true})
	if len(m.pools) != 1 {
		t.Errorf("%d pools, want 1", len(m.pools))
	}
	if m.keep(env, nil); len(m.pools)+len(m.envs) != 0 {
		t.Errorf("%d pools and %d Envs are left", len(m.pools), len(m.envs))
	}
}
