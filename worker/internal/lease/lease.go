// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"navix.sh/atoll/worker/internal/apitime"
)

const (
	// margin is subtracted from the lease's duration, because two machines' clocks need not run at the same rate.
	margin = time.Second
	// renewInterval is how often the lease is renewed. Leader election calls at the interval at which followers try, which is
	// shorter, so that they take over soon after a leader has released the lease.
	renewInterval = time.Second
	// shortDuration is the lease's while renewals are quick. It bounds how long a cluster waits for another leader after the
	// leader was killed. Five renewals fit into it.
	shortDuration = 6 * time.Second
	// quick is how long a renewal may take for the next one to be short: two of them, and the pause between them, fit into
	// shortDuration.
	quick = time.Second
	// releases is how often a release is tried that conflicts.
	releases = 3
)

// Lock is a Lease lock that knows until when it is held. Leader election uses it as its lock.
type Lock struct {
	resourcelock.Interface
	now    func() time.Duration   // continues during suspend
	until  atomic.Int64           // by now; 0: not held
	led    atomic.Bool            // it was held once
	holder atomic.Pointer[string] // as the lease was read last
	once   sync.Once
	over   chan struct{} // closed when it was held once and must not be held again

	// The rest is of the last successful write. Leader election makes one at a time.
	renewed time.Duration // when it was sent
	took    time.Duration
	mayLast time.Duration                      // from renewed: how long a lease of the configured duration would have been held
	term    *resourcelock.LeaderElectionRecord // nil: there was none, or the lease was released since
}

// ErrLapsed ends the term of a leader that did not renew its lease in time. Other processes may have led and released the lease
// meanwhile: the state of this process, and its work under way, is outdated.
var ErrLapsed = errors.New("the lease had lapsed before it was renewed; this process must not lead again")

// addressMark separates, in an identity, its holder's name from the address for other replicas.
const addressMark = "@"

// New returns a lock on the named Lease, with its own connection and identity. The identity contains the address where other
// replicas reach this one; empty: none. renewDeadline is leader election's: one request must not use it up. clocks pass from
// leader to leader in the Lease.
func New(cfg *rest.Config, namespace, name, address string, renewDeadline time.Duration, clocks Handover, log logr.Logger) (*Lock, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = requestTimeout(renewDeadline)
	rest.AddUserAgent(cfg, "leader-election")
	client, err := coordinationv1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("building lease client: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading host name: %w", err)
	}
	identity := host + "_" + uuid.NewString()
	if address != "" {
		identity += addressMark + address
	}
	return Wrap(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
		Client:     WithHandover(client, clocks, log),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}), nil
}

// requestTimeout is how long one request for the lease may take. A renewal is a single request, so an API server that takes this
// long for each response costs no lease. The rest of the deadline is for a second try, if the first was lost. A longer timeout is
// of no use: two renewals in sequence, and the pause between them, must fit into the time for which the first is valid.
func requestTimeout(renewDeadline time.Duration) time.Duration {
	return max(time.Second, renewDeadline*13/20)
}

// Get reads the lease, as followers do all the time.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.holder.Store(&record.HolderIdentity)
	}
	return record, raw, err
}

// Address returns where other replicas reach the leader, as far as is known; empty: there is no leader, or it does not listen.
// self: it is this one.
func (l *Lock) Address() (address string, self bool) {
	if l.Held() {
		_, address, _ = strings.Cut(l.Identity(), addressMark)
		return address, true
	}
	holder := l.holder.Load()
	if holder == nil || *holder == l.Identity() {
		return "", false
	}
	_, address, _ = strings.Cut(*holder, addressMark)
	if _, own, _ := strings.Cut(l.Identity(), addressMark); address == own {
		return "", false // this process' predecessor, which is gone
	}
	return address, false
}

// Wrap wraps another lock.
func Wrap(lock resourcelock.Interface) *Lock { return WrapWith(lock, apitime.UpTime) }

// WrapWith is Wrap with another clock, which continues during suspend as well.
func WrapWith(lock resourcelock.Interface, now func() time.Duration) *Lock {
	return &Lock{Interface: lock, now: now, over: make(chan struct{})}
}

// Lapsed is closed when the lease was found to have lapsed under this process. Leader election would retry until its renewal
// deadline, in vain.
func (l *Lock) Lapsed() <-chan struct{} { return l.over }

func (l *Lock) end() error {
	l.once.Do(func() { close(l.over) })
	return ErrLapsed
}

// Held reports whether no other process can have become leader yet.
func (l *Lock) Held() bool {
	until := l.until.Load()
	return until != 0 && l.now() < time.Duration(until)
}

// Create acquires a lease that no process ever held.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	before := l.now()
	if l.lapsed() {
		return l.end()
	}
	return l.write(before, record, func(record resourcelock.LeaderElectionRecord) error { return l.Interface.Create(ctx, record) })
}

// lapsed reports whether this process has led and does not hold the lease.
func (l *Lock) lapsed() bool { return l.led.Load() && !l.Held() }

// Update acquires, renews or releases the lease.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	before, update := l.now(), l.Interface.Update
	switch mine := record.HolderIdentity == l.Identity(); {
	case mine && l.lapsed() && !l.unbroken(before, &record):
		return l.end()
	case mine && l.Held() && before-l.renewed < renewInterval:
		return nil
	case !mine:
		// Released from the moment of the request: the write may succeed and its response be lost.
		l.until.Store(0)
		l.term, update = nil, l.release
	}
	return l.write(before, record, func(record resourcelock.LeaderElectionRecord) error { return update(ctx, record) })
}

// release writes a record that has no holder, while the lease names this process. A renewal that was cancelled under way may be carried out
// before it, so that it conflicts.
func (l *Lock) release(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	for try := 1; ; try++ {
		err := l.Interface.Update(ctx, record)
		if record.HolderIdentity != "" || !apierrors.IsConflict(err) || try == releases {
			return err
		}
		if now, _, readErr := l.Get(ctx); readErr != nil || now.HolderIdentity != l.Identity() {
			return err
		}
	}
}

// unbroken reports whether a renewal continues the term that has lapsed: no other process has led since. Leader election counts
// the terms: a record that it read from another holder, or from none, gets another number and time. The API server refuses the
// write if the Lease has changed since it was read. After the time that a long lease would have lasted, the term is over.
func (l *Lock) unbroken(before time.Duration, record *resourcelock.LeaderElectionRecord) bool {
	return l.term != nil && before < l.renewed+l.mayLast &&
		record.LeaderTransitions == l.term.LeaderTransitions && record.AcquireTime.Equal(&l.term.AcquireTime)
}

// write sends a record, for how long the API server's last response allows, and notes its outcome. A write that failed, or whose
// outcome is unknown, extends nothing: the previous one still counts.
func (l *Lock) write(before time.Duration, record resourcelock.LeaderElectionRecord,
	send func(resourcelock.LeaderElectionRecord) error) error {
	if record.HolderIdentity != l.Identity() {
		return send(record)
	}
	configured := time.Duration(record.LeaseDurationSeconds) * time.Second
	duration := configured
	if l.term != nil && l.took <= quick {
		duration = min(duration, shortDuration)
		record.LeaseDurationSeconds = int(duration / time.Second)
	}
	if duration <= margin {
		return errors.New("lease duration leaves no time to lead")
	}
	until := int64(before + duration - margin)
	// A lease that gets shorter is shorter from the moment of the request: the write may succeed and its response be lost.
	if l.until.Load() > until {
		l.until.Store(until)
	}
	if err := send(record); err != nil {
		l.took = quick + 1
		return err
	}
	l.renewed, l.took, l.mayLast, l.term = before, l.now()-before, configured-margin, &record
	l.led.Store(true)
	l.until.Store(until)
	return nil
}
