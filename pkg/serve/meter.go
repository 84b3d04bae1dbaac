// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/pace"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/wallclock"
)

// The cost of input, in calls without credentials, each of which takes about 100 µs. A connection, 32 reads or frames, and 4 KiB cost one
// call each.
const (
	perRead = 1. / 32
	perByte = 1. / (4 << 10)
)

// perFrame is the cost of an authenticated caller's frame that is neither a call nor data. A usual call has one or two such frames.
const perFrame = 1. / 16

const (
	burst        = 2 * time.Second
	callersBurst = time.Second / 2
	// leastBurst is enough to authenticate one caller of an address, however many addresses there are.
	leastBurst = 4
	// strangersRead bounds a single read from a connection whose caller is not authenticated, because input is charged after it is read.
	strangersRead = 512
	// maxWait is the longest wait that a connection may owe without being closed, until its caller is authenticated. It is also the longest
	// wait that an address may owe before its new connections are refused.
	maxWait = 5 * time.Second
	// maxDebt is the longest wait that a caller may owe before its calls are refused.
	maxDebt = 2 * time.Second
	// introduction is what a connection may spend before it waits for other connections of its address. It is enough to authenticate a caller.
	// A proxy opens many connections at once, and each returns what it spent once its caller is authenticated.
	introduction = 4
)

// paces limit the rate at which connections are read and calls are served (I14).
type paces struct {
	clock      clock.Clock
	connection float64 // rate of one connection without an authenticated caller
	addresses  *pace.Pace[netip.Prefix]
	callers    *pace.Pace[string]
	metrics    *Metrics
}

func newPaces(l Limits, m *Metrics) *paces {
	l, c := l.filled(), clock.RealClock{}
	return &paces{
		clock: c, connection: float64(l.StrangerRate) / 4, metrics: m,
		addresses: pace.New[netip.Prefix](pace.Limits{
			Rate: float64(l.StrangerRate), All: float64(l.StrangersRate), Burst: burst, Least: leastBurst}, c),
		callers: pace.New[string](pace.Limits{Rate: float64(l.CallRate), Burst: callersBurst, Least: 1}, c),
	}
}

// accept charges a new connection to its address and returns its meter, or nil if the address exceeds its rate.
func (p *paces) accept(origin netip.Prefix) *meter {
	if p.addresses.Take(origin, 0) > maxWait {
		p.metrics.refuse()
		return nil
	}
	m := &meter{paces: p, origin: origin, freed: make(chan struct{}), gone: make(chan struct{})}
	m.spend(1)
	return m
}

// call charges a call to its caller, or refuses it.
func (p *paces) call(caller string) (wait time.Duration, err error) {
	if p == nil {
		return 0, nil
	}
	if wait = p.callers.Take(caller, 1); wait <= maxDebt {
		return wait, nil
	}
	p.callers.Take(caller, -1)
	p.metrics.wait(callers)
	return 0, problem.New(problem.RateLimited, "this caller makes more calls than it may").WithRetryAfter(max(time.Second, wait))
}

// throttle charges a call to its caller and blocks until it may be served.
func (p *paces) throttle(ctx context.Context, caller string) error {
	wait, err := p.call(caller)
	if err != nil || wait == 0 {
		return err
	}
	p.metrics.wait(callers)
	return wallclock.Sleep(ctx, p.clock, wait)
}

// meter counts what one connection costs. It charges the address until a caller is authenticated, then that caller. A nil meter counts
// nothing.
type meter struct {
	paces  *paces
	origin netip.Prefix
	freed  chan struct{} // closed when the caller is authenticated
	gone   chan struct{} // closed with the connection
	close  sync.Once

	mu     sync.Mutex
	own    pace.Account
	spent  float64 // charged to the address so far
	caller string
	known  bool
}

// admit charges later input to the caller, and returns to the address what authentication cost.
func (m *meter) admit(caller string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.caller = caller; m.known {
		return
	}
	m.known = true
	m.paces.addresses.Take(m.origin, -m.spent)
	close(m.freed)
}

// stranger reports whether no caller is authenticated yet.
func (m *meter) stranger() bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.known
}

// spend charges the connection and its address.
func (m *meter) spend(amount float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known {
		return
	}
	m.spent += amount
	m.own.Take(m.paces.clock.Now(), m.paces.connection, m.paces.connection*burst.Seconds(), amount)
	m.paces.addresses.Take(m.origin, amount)
}

// fail charges the address for a call that failed authentication, unless its arrival was charged already.
func (m *meter) fail() {
	if m != nil && !m.stranger() {
		m.paces.addresses.Take(m.origin, 1)
	}
}

// frames charges HTTP/2 frames that were read. The calls of an authenticated caller are charged when they are checked.
func (m *meter) frames(calls, data, others int) {
	if m == nil {
		return
	}
	if m.stranger() {
		m.spend(float64(calls) + float64(data+others)*perRead)
		return
	}
	if others > 0 {
		m.mu.Lock()
		caller := m.caller
		m.mu.Unlock()
		m.paces.callers.Take(caller, float64(others)*perFrame)
	}
}

// debt returns how long the connection must not be read, and which metric label that wait has.
func (m *meter) debt() (wait time.Duration, who string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known {
		return m.paces.callers.Take(m.caller, 0), callers
	}
	if wait = m.own.Take(m.paces.clock.Now(), m.paces.connection, m.paces.connection*burst.Seconds(), 0); m.spent > introduction {
		wait = max(wait, m.paces.addresses.Take(m.origin, 0))
	}
	return wait, strangers
}

// wait blocks until the connection may be read. It fails if that takes longer than maxWait, or if the connection closes.
func (m *meter) wait() error {
	if m == nil {
		return nil
	}
	for {
		wait, who := m.debt()
		if wait <= 0 {
			return nil
		}
		m.paces.metrics.wait(who)
		if who == strangers && wait > maxWait {
			return errPace
		}
		timer := m.paces.clock.NewTimer(min(wait, time.Second))
		freed := m.freed
		if who == callers {
			freed = nil
		}
		select {
		case <-timer.C():
		case <-freed:
		case <-m.gone:
		}
		timer.Stop()
		select {
		case <-m.gone:
			return net.ErrClosed
		default:
		}
	}
}

func (m *meter) end() {
	if m != nil {
		m.close.Do(func() { close(m.gone) })
	}
}

// meterOf returns the meter of an accepted connection. It unwraps TLS.
func meterOf(conn net.Conn) *meter {
	for conn != nil {
		switch c := conn.(type) {
		case *counted:
			return c.meter
		case *replayed:
			conn = c.Conn
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
	return nil
}

type meterKey struct{}

// WithMeter is a ConnContext of http.Server. It makes the meter of a connection that a Limit listener accepted available to its requests.
func WithMeter(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, meterKey{}, meterOf(conn))
}

// AdmitCaller charges what the request's connection sends from now on to the caller. It is for handlers outside a Server. Until it is
// called, the connection is read at the rate for callers without credentials.
func AdmitCaller(ctx context.Context, caller string) { meterIn(ctx).admit(caller) }

func meterIn(ctx context.Context) *meter {
	m, _ := ctx.Value(meterKey{}).(*meter)
	return m
}

// Values of the metric label "who": the senders that wait.
const (
	strangers = "unauthenticated"
	callers   = "callers"
)

// Metrics count waits and refused connections.
type Metrics struct {
	waits   *prometheus.CounterVec
	refused prometheus.Counter
}

// NewMetrics registers metrics whose names begin with a prefix.
func NewMetrics(registry prometheus.Registerer, prefix string) (*Metrics, error) {
	m := &Metrics{
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_api_pace_waits_total",
			Help: "How often a connection was not read for a while, or a call refused, since its sender is over its pace.",
		}, []string{"who"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "_api_pace_connections_refused_total",
			Help: "Connections that were closed at once, since their address is over its pace.",
		}),
	}
	m.waits.WithLabelValues(strangers)
	m.waits.WithLabelValues(callers)
	for _, c := range []prometheus.Collector{m.waits, m.refused} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics of the API's pace: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) wait(who string) {
	if m != nil {
		m.waits.WithLabelValues(who).Inc()
	}
}

func (m *Metrics) refuse() {
	if m != nil {
		m.refused.Inc()
	}
}
