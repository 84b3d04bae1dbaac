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
	// margin is subtracted from the lease's duration, because the clocks of two machines may run at different rates.
	margin = time.Second
	// renewInterval is how often the lease is renewed. Leader election calls at the shorter interval at which followers try, so that they take
	// over soon after a leader has released the lease.
	renewInterval = time.Second
	// shortDuration is the lease's duration while renewals are fast. It bounds how long a cluster waits for another leader after the leader
	// was killed. Five renewals fit into it.
	shortDuration = 6 * time.Second
	// quick is the maximum duration of a renewal after which the next lease is short. Two such renewals, and the pause between them, fit into
	// shortDuration.
	quick = time.Second
	// releases is how often a conflicting release is tried.
	releases = 3
)

// Lock is a Lease lock that knows until when it is held. Leader election uses it as its lock.
type Lock struct {
	resourcelock.Interface
	now    func() time.Duration   // continues during suspend
	until  atomic.Int64           // on the clock of now; 0 if not held
	led    atomic.Bool            // it was ever held
	holder atomic.Pointer[string] // as last read
	once   sync.Once
	over   chan struct{} // closed when it was held and must not be held again

	// The fields below describe the last successful write. Leader election makes one write at a time.
	renewed time.Duration // when it was sent
	took    time.Duration
	mayLast time.Duration                      // from renewed: how long a lease of the configured duration would be held
	term    *resourcelock.LeaderElectionRecord // nil if there was none, or the lease was released since
}

// ErrLapsed ends the term of a leader that did not renew its lease in time. Other processes may have led and released the lease meanwhile,
// so the state of this process and its work under way are outdated.
var ErrLapsed = errors.New("the lease had lapsed before it was renewed; this process must not lead again")

// addressMark separates the holder's name from its address for other replicas, in an identity.
const addressMark = "@"

// Options configure a Lock.
type Options struct {
	Config          *rest.Config
	Namespace, Name string        // of the Lease
	Address         string        // at which other replicas reach this one; empty: they do not
	RenewDeadline   time.Duration // leader election's: one request must not use it up
	Clocks          Handover      // the Lease carries them from leader to leader
	Log             logr.Logger
}

// New returns a lock on a Lease, with its own connection and identity. The identity contains the address.
func New(o Options) (*Lock, error) {
	cfg := rest.CopyConfig(o.Config)
	cfg.Timeout = requestTimeout(o.RenewDeadline)
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
	if o.Address != "" {
		identity += addressMark + o.Address
	}
	return Wrap(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name},
		Client:     WithHandover(client, o.Clocks, o.Log),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}), nil
}

// requestTimeout returns how long one request for the lease may take. A renewal is a single request, so an API server that takes this long
// for each response costs no lease. The rest of the deadline is for a second try, if the first was lost. A longer timeout is useless: two
// renewals in sequence, and the pause between them, must fit into the time for which the first is valid.
func requestTimeout(renewDeadline time.Duration) time.Duration {
	return max(time.Second, renewDeadline*13/20)
}

// Get reads the lease, as followers do continually.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.holder.Store(&record.HolderIdentity)
	}
	return record, raw, err
}

// Address returns the address at which other replicas reach the leader, as far as it is known. It is "" if there is no leader, or if the
// leader does not listen. self is true if this process leads.
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
		return "", false // this process's predecessor, which is gone
	}
	return address, false
}

// Wrap returns a Lock around another lock.
func Wrap(lock resourcelock.Interface) *Lock { return WrapWith(lock, apitime.UpTime) }

// WrapWith is Wrap with another clock, which must continue during suspend as well.
func WrapWith(lock resourcelock.Interface, now func() time.Duration) *Lock {
	return &Lock{Interface: lock, now: now, over: make(chan struct{})}
}

// Lapsed returns a channel that is closed when the lease was found to have lapsed under this process. Leader election would retry in vain
// until its renewal deadline.
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
		// The lease counts as released from the moment of the request, because the write may succeed and its response be lost.
		l.until.Store(0)
		l.term, update = nil, l.release
	}
	return l.write(before, record, func(record resourcelock.LeaderElectionRecord) error { return update(ctx, record) })
}

// release writes a record without a holder, if the lease names this process. A renewal that was cancelled under way may be carried out
// before it and cause a conflict.
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

// unbroken reports whether a renewal continues the lapsed term, because no other process has led since. Leader election counts the terms: a
// record that it read from another holder, or from none, gets another number and time. The API server refuses the write if the Lease has
// changed since it was read. After the time that a long lease would have lasted, the term is over.
//
// A Lease has microseconds. Leader election keeps the time that it wrote, with nanoseconds, until it reads the Lease after a failed write.
func (l *Lock) unbroken(before time.Duration, record *resourcelock.LeaderElectionRecord) bool {
	return l.term != nil && before < l.renewed+l.mayLast && record.LeaderTransitions == l.term.LeaderTransitions &&
		record.AcquireTime.Truncate(time.Microsecond).Equal(l.term.AcquireTime.Truncate(time.Microsecond))
}

// write sends a record, with a duration that depends on the API server's last response time, and records the outcome. A write that failed,
// or whose outcome is unknown, extends nothing: the previous one still counts.
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
	// A shorter lease counts from the moment of the request, because the write may succeed and its response be lost.
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
