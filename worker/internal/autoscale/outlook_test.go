// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/apitime"
)

func TestOutlooksTellOfEdges(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	o, notified := newOutlooks(clk), 0
	o.onChange(func(types.NamespacedName) { notified++ })
	key := types.NamespacedName{Name: "a"}
	for i, step := range []struct {
		grow      bool
		saturated time.Duration
		notified  int
	}{
		{true, 0, 1}, {true, 0, 1}, {false, time.Minute, 2}, {false, 50 * time.Second, 2}, {false, 0, 3}, {true, 0, 4},
	} {
		o.set(key, step.grow, step.saturated)
		if grow, left := o.get(key); grow != step.grow || left != step.saturated || notified != step.notified {
			t.Errorf("step %d: can grow %v, saturated for %s, notified %d times", i, grow, left, notified)
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
	if o.forget(key); notified != 6 || len(o.pools) > 0 {
		t.Errorf("notified %d times, %d are left", notified, len(o.pools))
	}
}

// machine has the clocks of a worker's process, and of its API server.
type machine struct {
	local  *clocktesting.FakePassiveClock
	up     time.Duration
	server time.Time
	times  *apitime.Clock
}

// newMachine is one whose local clock is off by decades.
func newMachine(server time.Time) *machine {
	m := &machine{local: clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)), server: server}
	m.times = m.process()
	return m
}

// process is what another process of the machine has of the API server's clock.
func (m *machine) process() *apitime.Clock {
	c := apitime.NewOn(apitime.Machine{Boot: "a", Up: func() time.Duration { return m.up }}, m.local)
	m.answer(c)
	return c
}

func (m *machine) steady() *steady { return &steady{local: m.local, times: m.times} }

func (m *machine) pass(d time.Duration) {
	m.local.SetTime(m.local.Now().Add(d))
	m.up, m.server = m.up+d, m.server.Add(d)
	m.answer(m.times)
}

func (m *machine) step(d time.Duration) {
	m.server = m.server.Add(d)
	m.answer(m.times)
}

// answer has a clock observe a response of the API server.
func (m *machine) answer(c *apitime.Clock) {
	cfg := &rest.Config{}
	c.Watch(cfg)
	answer, err := cfg.WrapTransport(m).RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil))
	if err != nil {
		panic(err)
	}
	_ = answer.Body.Close()
}

func (m *machine) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Header: http.Header{"Date": {m.server.Format(http.TimeFormat)}}, Body: http.NoBody}, nil
}

// I11: neither a step of the API server's clock nor a wrong local clock has an effect.
func TestSteadyTimeDoesNotStep(t *testing.T) {
	m := newMachine(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	s := m.steady()
	start := s.now()
	m.step(-10 * time.Minute)
	m.pass(3 * time.Second)
	if got := s.now(); !start.Equal(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)) || got.Sub(start) != 3*time.Second {
		t.Errorf("began at %s, and 3 s later it is %s", start, got)
	}
}

// I11: the next leader continues where this one stopped, although the API server's clock was stepped meanwhile. What is in the
// pool stays as written, and new times are of the current clock.
func TestTimesAreWrittenByTheServersClock(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, step := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		m := newMachine(noon)
		s := m.steady()
		s.now()
		m.pass(time.Minute)
		before := &memo{status: &v1alpha1.PoolAutoScalingStatus{LastScaleUpTime: &metav1.Time{Time: s.now()}}}
		first := before.written(s)
		m.pass(time.Minute)
		m.step(step)
		m.pass(time.Minute)
		before.status.LastScaleDownTime = &metav1.Time{Time: s.now()}
		left := before.written(s)
		if !left.LastScaleUpTime.Equal(first.LastScaleUpTime) {
			t.Errorf("after a step by %s, %s was written anew as %s", step, first.LastScaleUpTime, left.LastScaleUpTime)
		}
		if want := noon.Add(3*time.Minute + step); !left.LastScaleDownTime.Time.Equal(want) {
			t.Errorf("after a step by %s, %s was written as %s", step, want, left.LastScaleDownTime)
		}
		m.pass(time.Minute)
		next := m.process()
		must.Succeed(t, next.Inherit(m.times.Leave()))
		successor := &steady{local: m.local, times: next}
		after := &memo{}
		after.takeOver(left, successor)
		for name, got := range map[string][2]time.Duration{
			"up":   {successor.now().Sub(after.status.LastScaleUpTime.Time), 3 * time.Minute},
			"down": {successor.now().Sub(after.status.LastScaleDownTime.Time), time.Minute},
		} {
			if got[0] != got[1] {
				t.Errorf("after a step by %s, the last scale %s was %s ago, want %s", step, name, got[0], got[1])
			}
		}
		if soon, atAll := urgent(after.written(successor), left); soon || atAll {
			t.Errorf("after a step by %s, the next leader writes %v over %v", step, after.written(successor), left)
		}
	}
}

func TestMemoryIsBoundedByPools(t *testing.T) {
	same := newMachine(time.Unix(0, 0)).steady()
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
