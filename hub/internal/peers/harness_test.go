// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/attach"
	"navix.sh/atoll/hub/internal/authority"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
)

const patience = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// federation is replicas of a hub behind listeners with real TLS. They share a registry, and know each other.
type federation struct {
	testing.TB
	ca       *pki.Authority
	replicas map[string]*replica
	members  members
}

// members are the replicas of a test.
type members struct {
	mu      sync.Mutex
	all     []Peer
	changed chan struct{}
}

func (m *members) Peers() []Peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Peer(nil), m.all...)
}

func (m *members) Changed() <-chan struct{} { return m.changed }

// replica is one of them.
type replica struct {
	*Service
	name  string
	fleet *fleet.Fleet
	link  string          // address
	gate  testserver.Gate // of its connections to others
	stop  func()
}

// noHandler takes what workers report about claims.
type noHandler struct{}

func (noHandler) OnEnded(context.Context, string, *federationv1.Ended) error {
	return errors.New("no records")
}
func (noHandler) OnKeys(string, []*federationv1.KeyHolder)     {}
func (noHandler) OnRestored(string, []*federationv1.KeyHolder) {}

// ledger is what workers are told of the ledger: which replica wrote it.
type ledger string

func (l ledger) Mark() *federationv1.LedgerMark { return &federationv1.LedgerMark{Id: string(l)} }

func (ledger) Remembered(context.Context, string, *federationv1.LedgerMark) (bool, error) {
	return false, nil
}

// issues is an authority that replaces no CA, and issues what is asked for.
type issues struct{}

const trusted = "the hash of the CAs"

func (issues) Trust() (authority.Trust, <-chan struct{}) { return authority.Trust{Hash: trusted}, nil }

func (issues) Renew(context.Context, fleet.Peer, string, []byte) *federationv1.Certificate {
	return &federationv1.Certificate{}
}

func (issues) Pause() time.Duration { return time.Minute }

func newFederation(t testing.TB, names ...string) *federation {
	t.Helper()
	ca, err := pki.New(filepath.Join(t.TempDir(), "pki"))
	must.Succeed(t, err)
	f := &federation{TB: t, ca: ca, replicas: map[string]*replica{}, members: members{changed: make(chan struct{}, 1)}}
	registry := store.NewMemory()
	t.Cleanup(func() { _ = registry.Close() })
	for _, name := range names {
		f.start(name, registry)
	}
	for _, r := range f.replicas {
		f.eventually(func() error {
			missing, n := r.Unreachable()
			return wait.If(n == len(names)-1, fmt.Sprintf("%s connected to %d of %d others, not to %v", r.name, n, len(names)-1, missing))
		})
	}
	return f
}

func (f *federation) credentials(of func() (link.Files, error)) *link.Credentials {
	f.Helper()
	files, err := of()
	must.Succeed(f, err)
	creds, err := link.LoadCredentials(files, logr.Discard())
	must.Succeed(f, err)
	return creds
}

func (f *federation) hub() *link.Credentials {
	return f.credentials(func() (link.Files, error) { return f.ca.Hub("127.0.0.1") })
}

func (f *federation) start(name string, registry store.Store) {
	f.Helper()
	r := &replica{name: name}
	creds, log := f.hub(), testlog.New(f).WithName(name)
	var err error
	r.fleet, err = fleet.New(f.Context(), fleet.Options{
		Clock: clock.RealClock{}, Registry: fleet.NewRegistry(registry), HubID: name, Log: log,
	})
	must.Succeed(f, err)
	workers := attach.NewServer(attach.Options{
		Fleet: r.fleet, Clock: clock.RealClock{}, Log: log, Ledger: ledger(name), Authority: issues{},
	})
	workers.Handle(noHandler{})
	served := link.NewServer(creds, nil, logr.Discard())
	federationv1.RegisterLinkServer(served, workers)
	r.link = testserver.ServeGRPC(f, served)
	lis := testserver.Listen(f)
	f.members.mu.Lock()
	f.members.all = append(f.members.all, Peer{Name: name, Address: lis.Addr().String(), Version: "test"})
	f.members.mu.Unlock()
	r.Service = New(Options{
		Name: name, Version: "test", Address: lis.Addr().String(), Fleet: r.fleet, Workers: workers, Credentials: creds,
		Members: &f.members, Clock: clock.RealClock{}, Log: log,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) {
			return r.gate.Dial(ctx, "tcp", target)
		})},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Serve(ctx, lis) })
	running.Go(func() { _ = r.Run(ctx) })
	r.stop = sync.OnceFunc(func() {
		cancel()
		r.gate.Open()
		running.Wait()
	})
	f.Cleanup(r.stop)
	f.replicas[name] = r
	for _, other := range f.replicas { // the tick would find it as well
		select {
		case f.members.changed <- struct{}{}:
		default:
		}
		_ = other
	}
}

func (f *federation) eventually(check func() error) {
	f.Helper()
	wait.For(f, patience, "the replicas", func(context.Context) error { return check() })
}

// worker is attached to a replica, and responds to what it is sent.
type worker struct {
	f        *federation
	id       string
	stream   link.Stream
	sequence uint64
	tunnels  *link.Tunnels
	end      func()

	on       atomic.Pointer[func(d *federationv1.Dispatch) *federationv1.Answer] // nil: no response
	released chan string
	issued   chan struct{} // has a token for each certificate
	send     sync.Mutex
}

// attach attaches a cluster with its so-manieth stream, and reports one Env with so many Pods.
func (f *federation) attach(id, at string, number uint64, ready int32, unacknowledged ...*federationv1.Unacknowledged) *worker {
	f.Helper()
	creds := f.credentials(func() (link.Files, error) { return f.ca.Cluster(id) })
	dial := link.Dial{Target: f.replicas[at].link, Credentials: creds, Clock: clock.RealClock{}, Log: logr.Discard()}
	w := &worker{f: f, id: id, sequence: 10 * number, released: make(chan string, 16), issued: make(chan struct{}, 16)}
	ctx, cancel := context.WithCancel(context.Background())
	opened, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_ = link.Run(ctx, dial, func(ctx context.Context, client federationv1.LinkClient) error {
			select {
			case <-opened:
				<-ctx.Done()
				return nil
			default:
			}
			stream, err := client.Attach(ctx)
			if err != nil {
				return err
			}
			w.stream = stream
			w.tunnels = dial.NewTunnels(client)
			defer func() { _ = w.tunnels.Close() }()
			close(opened)
			<-ctx.Done()
			return nil
		})
	}()
	<-opened
	w.end = func() { cancel(); <-done }
	f.Cleanup(w.end)
	w.frame(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Hello{Hello: &federationv1.Hello{
		Protocol: 1, ClusterUid: "uid-" + id, Term: "term-" + id, Incarnation: 1, Stream: number, Unacknowledged: unacknowledged,
		Trust: trusted,
	}}})
	welcome, err := w.stream.Recv()
	must.Succeed(f, err)
	if welcome.GetWelcome() == nil {
		f.Fatalf("%s is not welcome at %s: %v", id, at, welcome)
	}
	w.frame(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Begin{Begin: &federationv1.Begin{Incarnation: 1}}})
	go w.read()
	w.report(ready)
	return w
}

func (w *worker) frame(frame *federationv1.WorkerFrame) {
	w.send.Lock()
	defer w.send.Unlock()
	_ = w.stream.Send(frame)
}

func (w *worker) report(ready int32) {
	w.sequence++
	w.frame(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Report{Report: &federationv1.Report{
		Sequence: w.sequence, Last: true, Complete: true, Segments: []*federationv1.EnvSegment{{
			Key: demo.Proto(), Members: []*federationv1.MemberSegment{{
				Name: "pool", State: federationv1.MemberState_ACTIVE, ReadyIdle: ready, Idle: ready,
			}},
		}},
	}}})
}

var demo = segment.Key{Namespace: "default", Name: "demo"}

// renew makes the worker ask for a new certificate, and waits for it: its next stream is waited for from then on.
func (w *worker) renew() {
	w.f.Helper()
	w.frame(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_CertificateRequest{
		CertificateRequest: &federationv1.CertificateRequest{},
	}})
	select {
	case <-w.issued:
	case <-time.After(patience):
		w.f.Fatal("no certificate")
	}
}

// responds sets what the worker responds; nil: nothing.
func (w *worker) responds(on func(d *federationv1.Dispatch) *federationv1.Answer) { w.on.Store(&on) }

func (w *worker) read() {
	for {
		frame, err := w.stream.Recv()
		if err != nil {
			return
		}
		if frame.GetCertificate() != nil {
			w.issued <- struct{}{}
		}
		d := frame.GetDispatch()
		if d == nil {
			continue
		}
		w.frame(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Receipt{Receipt: &federationv1.Receipt{Id: d.GetId()}}})
		go w.respond(d)
	}
}

func (w *worker) respond(d *federationv1.Dispatch) {
	answer := &federationv1.Answer{Disposition: federationv1.Disposition_DONE}
	if id := d.GetRelease().GetId(); id != "" {
		w.released <- id
	} else if on := w.on.Load(); on != nil {
		answer = (*on)(d)
	}
	if answer != nil {
		answer.Id = d.GetId()
		w.frame(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Answer{Answer: answer}})
	}
}

// held waits until so many callers wait for a cluster that attaches again before they open a tunnel, at any replica.
func (f *federation) held(want int) {
	f.Helper()
	f.eventually(func() error {
		stacks := make([]byte, 4<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		n := bytes.Count(stacks, []byte("/attach.(*Server).Settle("))
		return wait.If(n == want, fmt.Sprintf("%d callers wait, want %d", n, want))
	})
}

// ready waits until a replica's view has so many ready Pods in a cluster that is attached to a replica.
func (r *replica) ready(f *federation, cluster, at string, want int32) {
	f.Helper()
	f.eventually(func() error {
		shown := r.fleet.Cluster(cluster)
		return wait.If(shown.GetReplica() == at && shown.GetIdle() == want, fmt.Sprintf("%s at %q with %d idle Pods by %s, want %q with %d",
			cluster, shown.GetReplica(), shown.GetIdle(), r.name, at, want))
	})
}
