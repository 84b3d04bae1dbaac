// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/etcdtest"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// replicas are two fleets that run on one registry, until the test ends.
func replicas(t *testing.T, one, other store.Shared) (a, b *Fleet) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	fleets := []*Fleet{newFleet(t, NewRegistry(one)), newFleet(t, NewRegistry(other))}
	for _, f := range fleets {
		running.Go(func() { must.Succeed(t, f.Run(ctx)) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return fleets[0], fleets[1]
}

func inMemory(t *testing.T, check func(t *testing.T, a, b *Fleet, s *store.Memory)) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		a, b := replicas(t, s, s)
		synctest.Wait()
		check(t, a, b, s)
	})
}

func ended(s *Session) bool {
	select {
	case <-s.Replaced():
		return true
	default:
		return false
	}
}

// What one replica records of a cluster, the other one has at once: whom the name is bound to, draining, and a forget, which ends the
// stream there.
func TestI4AForgetAtOneReplicaEndsTheStreamAtAnother(t *testing.T) {
	inMemory(t, func(t *testing.T, a, b *Fleet, _ *store.Memory) {
		o := connected(t, a, "east", pool(env(1), 1))
		synctest.Wait()
		if got := b.Registration("east"); got != o.uid || fmt.Sprint(b.ClusterIDs()) != "[east]" {
			t.Errorf("registered at a, b has %q of %v", got, b.ClusterIDs())
		}
		operate(t, b.Drain, "east")
		synctest.Wait()
		if !a.cluster("east").draining.Load() {
			t.Error("drained at b, and a sends claims")
		}
		operate(t, b.Forget, "east")
		synctest.Wait()
		if !ended(o.session) || !a.Forgotten("east", o.uid) || len(a.ClusterIDs()) != 0 || len(a.Keys("")) != 0 {
			t.Errorf("forgotten at b, a has %v with %v, stream ended: %t", a.ClusterIDs(), a.Keys(""), ended(o.session))
		}
		if _, _, refused := a.Connect(Peer{ClusterID: "east"}, o.hello()); refused.GetReason() != string(RefusedForgotten) {
			t.Errorf("at a: %v", refused)
		}
		operate(t, a.Undrain, "east")
		synctest.Wait()
		o.connect(b)
		wantTruth(t, b, o)
	})
}

// The keys of a forgotten cluster's certificates are refused at every replica, under every name.
func TestAKeyRevokedAtOneReplicaIsRevokedAtAll(t *testing.T) {
	inMemory(t, func(t *testing.T, a, b *Fleet, _ *store.Memory) {
		connect := func(f *Fleet, id, uid string) (*Session, *federationv1.Refused) {
			s, _, refused := f.Connect(Peer{ClusterID: id, Key: "k"}, &federationv1.Hello{Protocol: 1, ClusterUid: uid, Term: id, Stream: 1})
			return s, refused
		}
		_, refused := connect(a, "east", "e")
		other, refused2 := connect(b, "west", "w")
		if refused != nil || refused2 != nil {
			t.Fatal(refused, refused2)
		}
		synctest.Wait()
		operate(t, a.Forget, "east")
		synctest.Wait()
		if _, refused := connect(b, "north", "n"); !ended(other) || refused.GetReason() != string(RefusedForgotten) {
			t.Errorf("at b west's stream ended: %t; north: %v", ended(other), refused)
		}
	})
}

// Two clusters that register under one name at two replicas: one gets it, the other one is refused.
func TestOneNameAtTwoReplicas(t *testing.T) {
	s := store.NewMemory()
	a, b := newFleet(t, NewRegistry(s)), newFleet(t, NewRegistry(s)) // neither follows: each is behind
	first, second := newOwner(t, "east"), newOwner(t, "east")
	second.uid = "other"
	first.attach(a)
	if _, _, refused := b.Connect(Peer{ClusterID: "east"}, second.hello()); refused.GetReason() != string(IdentityMismatch) {
		t.Errorf("another cluster of the name: %v", refused)
	}
	if got := b.Registration("east"); got != first.uid {
		t.Errorf("b has %q", got)
	}
	first.newTerm("later") // and the registered one is welcome there
	first.connect(b)
}

// An incarnation that began at one replica is not begun by another leader at a replica that has not heard of it, and a stream of an older
// leader ends.
func TestI4IncarnationsRiseAcrossReplicas(t *testing.T) {
	inMemory(t, func(t *testing.T, a, b *Fleet, s *store.Memory) {
		old := connected(t, a, "east")
		behind := newFleet(t, NewRegistry(s))
		next := *old
		next.newTerm("east-term-2")
		next.connect(b)
		synctest.Wait()
		if !ended(old.session) {
			t.Error("the stream of the older leader is open at a")
		}
		late := *old
		late.newTerm("east-term-3")
		session, welcome := late.hail(behind, late.nextHello())
		if welcome.GetHighestIncarnation() != 1 {
			t.Fatalf("a replica that is behind: %v", welcome)
		}
		if err := session.Begin(&federationv1.Begin{Incarnation: 2}); !errors.Is(err, ErrIncarnation) {
			t.Errorf("incarnation 2 of two leaders: %v", err)
		}
		session.Close()
		late.attach(behind) // it knows better now
		if late.incarnation != 3 {
			t.Errorf("incarnation %d", late.incarnation)
		}
	})
}

// Two replicas change one record at a time: neither change is lost.
func TestChangesOfOneRecordAtTwoReplicas(t *testing.T) {
	s := store.NewMemory()
	a, b := newFleet(t, NewRegistry(s)), newFleet(t, NewRegistry(s))
	o := connected(t, a, "east", pool(env(1), 1), pool(env(2), 1))
	b.obtain("east")
	must.Succeed(t, b.cluster("east").reload(t.Context()))
	operate(t, b.Drain, "east")
	o.remove(env(1))
	must.Succeed(t, a.cluster("east").saveIfDirty(t.Context()))
	operate(t, b.Undrain, "east") // b is behind again
	operate(t, a.Drain, "east")
	r, found, err := hubstate.LoadRecord(t.Context(), s, "east")
	must.Succeed(t, err)
	if !found || !r.Draining || len(r.Tombstones) != 1 || r.Incarnation != 1 || r.UID != o.uid {
		t.Errorf("the record is %+v", r)
	}
}

// A replica that follows another one's change before it has taken over its own earlier one keeps the later one, and does not undo it.
func TestAChangeHidesNoLaterOne(t *testing.T) {
	s := store.NewMemory()
	a := newFleet(t, NewRegistry(s))
	connected(t, a, "east")
	operate(t, a.Drain, "east")
	c := a.cluster("east")
	c.mu.Lock()
	own := c.recordCopy()
	c.mu.Unlock()
	operate(t, newFleet(t, NewRegistry(s)).Revoke, "east")
	must.Succeed(t, c.reload(t.Context()))
	if kept := c.saved(own, c.adoptChange); kept.RevokedAt.IsZero() || !a.Cluster("east").GetRevoked() {
		t.Errorf("the replica has %+v", kept)
	}
	operate(t, a.Undrain, "east")
	r, _, err := hubstate.LoadRecord(t.Context(), s, "east")
	must.Succeed(t, err)
	if r.Draining || r.RevokedAt.IsZero() {
		t.Errorf("the record is %+v", r)
	}
}

// A replica that cannot follow what others write keeps trying, and has it all later.
func TestAReplicaThatWasCutOffCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		cut := &cutOff{Shared: s}
		a, b := replicas(t, s, cut)
		synctest.Wait()
		cut.set(errors.New("no way there"))
		for i := range 5000 { // more than the store keeps
			_, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: fmt.Sprint("other/", i%10)}, {Key: fmt.Sprint("others/", i)}}})
			must.Succeed(t, err)
		}
		o := connected(t, a, "east")
		synctest.Wait()
		cut.set(nil)
		wait.For(t, 2*time.Second, "b to know the cluster", func(context.Context) error {
			got := b.Registration("east")
			return wait.If(got == o.uid, got)
		})
	})
}

// cutOff is a store that may not respond. Its watches end.
type cutOff struct {
	store.Shared
	mu    sync.Mutex
	err   error
	watch context.CancelFunc
}

func (c *cutOff) set(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err = err; err != nil && c.watch != nil {
		c.watch()
	}
}

func (c *cutOff) Range(ctx context.Context, prefix, after string, limit int) ([]store.Entry, error) {
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return c.Shared.Range(ctx, prefix, after, limit)
}

func (c *cutOff) Watch(ctx context.Context, prefix string, after uint64, changed func([]store.Event)) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	c.watch = cancel
	c.mu.Unlock()
	if err := c.Shared.Watch(watching, prefix, after, changed); ctx.Err() != nil {
		return err
	}
	return store.ErrCompacted
}

// The same with a real etcd, within a second.
func TestReplicasOnEtcd(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{})
	open := func() *store.Etcd {
		s, err := store.OpenEtcd(t.Context(), store.EtcdOptions{Endpoints: e.Endpoints(), Prefix: "/atoll", Kind: "registry", Schema: 2})
		must.Succeed(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	a, b := replicas(t, open(), open())
	owners := map[string]*owner{}
	for i := range 20 {
		o := connected(t, a, fmt.Sprintf("c%d", i))
		owners[o.id] = o
	}
	wait.For(t, time.Minute, "all clusters at b", func(context.Context) error {
		return wait.If(len(b.ClusterIDs()) == len(owners), b.ClusterIDs())
	})
	var wg sync.WaitGroup
	for id, o := range owners {
		wg.Go(func() {
			if _, err := b.Drain(t.Context(), id); err != nil {
				t.Errorf("draining %s: %v", id, err)
			}
			begin := time.Now()
			if _, err := b.Forget(t.Context(), id); err != nil {
				t.Errorf("forgetting %s: %v", id, err)
			}
			<-o.session.Replaced()
			if took := time.Since(begin); took > 5*time.Second { // a second; the machine may be busy
				t.Errorf("the stream of %s ended %s after its forget", id, took)
			}
		})
	}
	wg.Wait()
	if left := strings.Join(a.ClusterIDs(), " "); left != "" {
		t.Errorf("a has %s", left)
	}
}
