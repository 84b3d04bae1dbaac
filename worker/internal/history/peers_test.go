// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/worker/internal/history"
)

// lease holds which replica leads.
type lease struct {
	mu      sync.Mutex
	address string
}

func (l *lease) give(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.address = address
}

func (l *lease) now() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.address
}

// worker is the replicas of one cluster.
type worker struct {
	t         *testing.T
	authority *pki.Authority
	lease     *lease
}

func newWorker(t *testing.T) *worker {
	t.Helper()
	authority, err := pki.New(filepath.Join(t.TempDir(), "pki"))
	must.Succeed(t, err)
	return &worker{t: t, authority: authority, lease: &lease{}}
}

func (w *worker) credentials(cluster string) *link.Credentials {
	w.t.Helper()
	files, err := w.authority.Cluster(cluster)
	must.Succeed(w.t, err)
	creds, err := link.LoadCredentials(files, logr.Discard())
	must.Succeed(w.t, err)
	return creds
}

// replica is one process, on a disk that outlives it.
type replica struct {
	*testHistory
	peers   *history.Peers
	address string
	stop    func()
}

// place is a replica as its lease sees it.
type place struct {
	lease *lease
	own   string
}

func (p place) Address() (string, bool) {
	address := p.lease.now()
	return address, address == p.own
}

func (w *worker) replica(s store.Store, cluster string, change ...func(*history.Options)) *replica {
	w.t.Helper()
	lis := testserver.Listen(w.t)
	var err error
	r := &replica{testHistory: open(w.t, unclosed{s}, change...), address: lis.Addr().String()}
	r.peers, err = history.NewPeers(history.PeerOptions{
		History: r.History, ClusterID: cluster, Credentials: w.credentials(cluster), Leader: place{w.lease, r.address},
		Listener: lis, Clock: clock.RealClock{}, Log: logr.Discard(),
	})
	must.Succeed(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.peers.Start(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, r.Close()); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(r.stop)
	return r
}

func (w *worker) lead(r *replica) { w.lease.give(r.address) }

func (r *replica) followedBy(n int) {
	r.t.Helper()
	planetest.Eventually(r.t, fmt.Sprint(n, " followers"), func() error {
		got := r.peers.Followers()
		return wait.If(got == n, got)
	})
}

// A record is on the follower's disk before Keep returns; so are earlier ones, and the records that only the follower had are on
// the leader's.
func TestAFollowerHasEveryRecord(t *testing.T) {
	w := newWorker(t)
	a, b := w.replica(store.NewMemory(), "east"), w.replica(store.NewMemory(), "east")
	for i := range 700 {
		a.keep(record(i, keyed(fmt.Sprint("k", i), 1)))
	}
	for i := range 300 {
		b.keep(record(1000 + i))
	}
	if b.peers.Caught() {
		t.Error("a replica without copies says that it has them")
	}
	w.lead(a)
	a.followedBy(1)
	if !b.peers.Caught() || b.Len() != 1000 {
		t.Errorf("the follower has %d records, ready: %t", b.Len(), b.peers.Caught())
	}
	planetest.Eventually(t, "what the follower alone had", func() error { return wait.If(a.Len() == 1000, a.Len()) })
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			a.keep(record(2000+i, keyed(fmt.Sprint("n", i), 1)))
			if !b.Has(id(2000 + i)) {
				t.Errorf("record %d was let go before the follower had it", i)
			}
		})
	}
	all.Wait()
	if k, ok := b.ByKey("k5"); !ok || k.ID != id(5) || !k.ForHub {
		t.Errorf("the follower answers a key with %v", k)
	}
	if !slices.Equal(a.ids(500, anySandbox), b.ids(500, anySandbox)) {
		t.Error("the two differ")
	}
}

// Without followers the local disk is enough; a replica that returns gets what it missed, once.
func TestAReplicaThatWasAwayCatchesUp(t *testing.T) {
	w := newWorker(t)
	diskB := store.NewMemory()
	a, b := w.replica(store.NewMemory(), "east"), w.replica(diskB, "east")
	w.lead(a)
	a.keep(record(0))
	a.followedBy(1)
	b.stop()
	a.followedBy(0)
	for i := range 10 {
		a.keep(record(1 + i))
	}
	b = w.replica(diskB, "east")
	a.followedBy(1)
	if b.Len() != 11 {
		t.Errorf("it has %d records, want 11", b.Len())
	}
	// The former leader returns with nothing, and gets all from the current one.
	a.stop()
	w.lead(b)
	b.keep(record(20))
	c := w.replica(store.NewMemory(), "east")
	b.followedBy(1)
	if c.Len() != 12 {
		t.Errorf("the new one has %d records, want 12", c.Len())
	}
	entries, err := diskB.Range(t.Context(), "log/", "", 0)
	if err != nil || len(entries) != 12 {
		t.Errorf("the log has %d lines for 12 records, %v", len(entries), err)
	}
}

// The next leader does not send again what the hub has stored, whether or not it ran when the hub acknowledged it.
func TestWhatTheHubHasIsKnownToFollowers(t *testing.T) {
	w := newWorker(t)
	disk := store.NewMemory()
	a, b := w.replica(store.NewMemory(), "east"), w.replica(disk, "east")
	w.lead(a)
	a.followedBy(1)
	for i := range 4 {
		a.keep(record(i, keyed(fmt.Sprint("k", i), 1)))
	}
	if b.Unsent() != 4 {
		t.Errorf("%d for the hub, want 4", b.Unsent())
	}
	upTo, _, _ := a.ToSend(t.Context(), 2)
	a.Sent(upTo)
	unsent := func(n int) {
		t.Helper()
		planetest.Eventually(t, "what the hub has", func() error {
			got := b.Unsent()
			return wait.If(got == n, fmt.Sprintf("%d for the hub, want %d", got, n))
		})
	}
	unsent(2)
	b.stop()
	a.followedBy(0)
	upTo, _, _ = a.ToSend(t.Context(), 1)
	a.Sent(upTo)
	a.keep(record(10, keyed("k10", 1)))
	b = w.replica(disk, "east")
	a.followedBy(1)
	unsent(2) // the last of the four, and the new one
}

// Copies are for replicas of the same cluster alone, whichever process dials.
func TestCopiesStayInTheCluster(t *testing.T) {
	w := newWorker(t)
	a, other := w.replica(store.NewMemory(), "east"), w.replica(store.NewMemory(), "west")
	a.keep(record(0))
	conn, err := net.Dial("tcp", a.address)
	must.Succeed(t, err)
	conn.Close()
	w.lead(a) // which west takes for its own leader's address
	friend := w.replica(store.NewMemory(), "east")
	a.followedBy(1)
	if other.Len() != 0 || !friend.Has(id(0)) {
		t.Errorf("another cluster has %d records", other.Len())
	}
	w.lead(other)
	other.keep(record(1))
	planetest.Eventually(t, "the follower to leave", func() error {
		n := a.peers.Followers()
		return wait.If(n == 0, n)
	})
	if friend.Has(id(1)) || a.Has(id(1)) || other.peers.Followers() != 0 {
		t.Error("a record of another cluster was taken")
	}
}

// A record whose write failed after it was carried out reaches the followers too. Its Keep waits for them, and no other record follows.
func TestARecordOfAnUnclearWriteIsCopied(t *testing.T) {
	w := newWorker(t)
	disk := &broken{Store: store.NewMemory()}
	stands := func(o *history.Options) { o.Clock = testclock.NewFakeClock(time.Now()) } // no timer wakes the session
	a, b := w.replica(disk, "east", stands), w.replica(store.NewMemory(), "east")
	w.lead(a)
	a.followedBy(1)
	disk.after.Store(true)
	if _, err := a.Keep(t.Context(), record(0)); err == nil {
		t.Error("a write that failed counts as done")
	}
	disk.after.Store(false)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := a.Keep(ctx, record(0)); err != nil || !b.Has(id(0)) {
		t.Errorf("the record is kept again: %v; the follower has it: %t", err, b.Has(id(0)))
	}
}

// slow is a disk that stops.
type slow struct {
	store.Store
	stopped atomic.Bool
	gone    chan struct{}
}

func (s *slow) Commit(ctx context.Context, txn store.Txn) (uint64, error) {
	if s.stopped.Load() {
		<-s.gone
		return 0, errors.New("the disk is gone")
	}
	return s.Store.Commit(ctx, txn)
}

// A follower whose disk hangs is left behind.
func TestAFollowerThatHangsIsNotWaitedForForEver(t *testing.T) {
	w := newWorker(t)
	disk := &slow{Store: store.NewMemory(), gone: make(chan struct{})}
	a := w.replica(store.NewMemory(), "east")
	w.replica(disk, "east")
	w.lead(a)
	a.followedBy(1)
	disk.stopped.Store(true)
	defer close(disk.gone)
	began := time.Now()
	a.keep(record(0))
	if took := time.Since(began); took < time.Second || took > 10*time.Second {
		t.Errorf("it was waited for for %s", took)
	}
	a.followedBy(0)
}

// Leaders change at random: in the end every replica has every record that was kept.
func TestNothingIsLostWhateverLeads(t *testing.T) {
	w := newWorker(t)
	disks := []store.Store{store.NewMemory(), store.NewMemory(), store.NewMemory()}
	var replicas []*replica
	for _, d := range disks {
		replicas = append(replicas, w.replica(d, "east"))
	}
	random := rand.New(rand.NewPCG(1, 2))
	kept := 0
	for range 25 {
		leader := random.IntN(len(replicas))
		w.lead(replicas[leader])
		for range random.IntN(20) {
			replicas[leader].keep(record(kept))
			kept++
		}
		if victim := random.IntN(len(replicas)); random.IntN(2) == 0 {
			replicas[victim].stop()
			replicas[victim] = w.replica(disks[victim], "east")
		}
	}
	w.lead(replicas[0])
	for i, r := range replicas {
		planetest.Eventually(t, fmt.Sprint("replica ", i), func() error {
			return wait.If(r.Len() == kept, fmt.Sprintf("it has %d records, want %d", r.Len(), kept))
		})
	}
}
