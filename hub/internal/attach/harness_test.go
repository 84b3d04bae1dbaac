// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
)

const patience = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hub is a fleet behind a listener with real TLS.
type hub struct {
	*testing.T
	fleet   *fleet.Fleet
	server  *Server
	address string
	ca      *pki.Authority

	recovering atomic.Bool // the hub has lost claim keys
}

// handler is a Handler of functions; nil ones do nothing.
type handler struct {
	onEnded            func(ctx context.Context, cluster string, e *federationv1.Ended) error
	onKeys, onRestored func(cluster string, keys []*federationv1.KeyHolder)
}

func (h handler) OnEnded(ctx context.Context, cluster string, e *federationv1.Ended) error {
	if h.onEnded == nil {
		return errors.New("this hub keeps no records")
	}
	return h.onEnded(ctx, cluster, e)
}

func (h handler) OnKeys(cluster string, keys []*federationv1.KeyHolder) {
	if h.onKeys != nil {
		h.onKeys(cluster, keys)
	}
}

func (h handler) OnRestored(cluster string, keys []*federationv1.KeyHolder) {
	if h.onRestored != nil {
		h.onRestored(cluster, keys)
	}
}

func newHub(t *testing.T, takes handler) *hub {
	t.Helper()
	h := &hub{T: t}
	dir := t.TempDir()
	registry, err := store.OpenBolt(filepath.Join(dir, "registry.db"), "registry")
	h.must(err)
	t.Cleanup(func() { h.must(registry.Close()) })
	h.fleet, err = fleet.New(t.Context(), fleet.Options{
		Clock: clock.RealClock{}, Registry: fleet.NewRegistry(registry), HubID: "hub-0",
		Recovering: func(string) bool { return h.recovering.Load() },
	})
	h.must(err)
	h.ca, err = pki.New(filepath.Join(dir, "pki"))
	h.must(err)
	files, err := h.ca.Hub("127.0.0.1")
	h.must(err)
	creds, err := link.LoadCredentials(files, logr.Discard())
	h.must(err)
	h.server = NewServer(Options{Fleet: h.fleet, Clock: clock.RealClock{}})
	h.server.Handle(takes)
	served := link.NewServer(creds, nil, logr.Discard())
	federationv1.RegisterLinkServer(served, h.server)
	h.address = testserver.ServeGRPC(t, served)
	return h
}

func (h *hub) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *hub) eventually(check func() error) {
	h.Helper()
	wait.For(h, patience, "the hub", func(context.Context) error { return check() })
}

// worker is the other end of one stream, doing what the test says.
type worker struct {
	*hub
	id     string
	stream link.Stream
	frames chan *federationv1.HubFrame // frames that it reads; closed at the end of the stream
	end    context.CancelFunc
}

var errOver = errors.New("over")

// credentials are those of a new key of a cluster.
func (h *hub) credentials(id string) *link.Credentials {
	h.Helper()
	files, err := h.ca.Cluster(id)
	h.must(err)
	creds, err := link.LoadCredentials(files, logr.Discard())
	h.must(err)
	return creds
}

// dial connects with a certificate of a cluster and opens a stream.
func (h *hub) dial(id string) *worker { return h.dialWith(id, h.credentials(id)) }

func (h *hub) dialWith(id string, creds *link.Credentials) *worker {
	h.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{hub: h, id: id, end: cancel}
	opened, done := make(chan struct{}), make(chan struct{})
	dial := link.Dial{Target: h.address, Credentials: creds, Clock: clock.RealClock{}, Log: logr.Discard()}
	go func() {
		defer close(done)
		_ = link.Run(ctx, dial, func(ctx context.Context, client federationv1.LinkClient) error {
			stream, err := client.Attach(ctx)
			if err != nil {
				h.Error(err)
			}
			w.stream = stream
			close(opened)
			<-ctx.Done()
			return errOver
		})
	}()
	<-opened
	h.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *worker) send(frame *federationv1.WorkerFrame) {
	w.Helper()
	w.must(w.stream.Send(frame))
}

// sendHello sends a hello; what it lacks is set.
func (w *worker) sendHello(hello *federationv1.Hello) {
	w.Helper()
	hello.Protocol, hello.Stream = 1, max(1, hello.Stream)
	if hello.ClusterUid == "" {
		hello.ClusterUid, hello.Term = "uid-"+w.id, "term-"+w.id
	}
	w.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Hello{Hello: hello}})
}

func (w *worker) hello(hello *federationv1.Hello) *federationv1.HubFrame {
	w.Helper()
	w.sendHello(hello)
	frame, err := w.stream.Recv()
	w.must(err)
	return frame
}

// attach runs up to an acknowledged complete report of the given Envs, and reads from then on.
func (h *hub) attach(id string, envs ...string) *worker {
	h.Helper()
	w := h.begin(id)
	w.read()
	w.report(&federationv1.Report{Sequence: 1, Last: true, Complete: true}, envs...)
	return w
}

// begin runs up to Begin, and reads nothing.
func (h *hub) begin(id string) *worker {
	h.Helper()
	return h.beginWith(id, h.credentials(id), &federationv1.Hello{Incarnation: 1})
}

func (h *hub) beginWith(id string, creds *link.Credentials, hello *federationv1.Hello) *worker {
	h.Helper()
	w := h.dialWith(id, creds)
	if frame := w.hello(hello); frame.GetWelcome() == nil {
		h.Fatalf("cluster %s was not welcomed: %v", id, frame)
	}
	w.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Begin{Begin: &federationv1.Begin{Incarnation: 1}}})
	return w
}

func (w *worker) read() {
	w.frames = make(chan *federationv1.HubFrame, 1024)
	go func() {
		defer close(w.frames)
		for {
			frame, err := w.stream.Recv()
			if err != nil {
				return
			}
			w.frames <- frame
		}
	}()
}

// next returns the next wanted frame and drops the frames before it.
func (w *worker) next(what string, wanted func(*federationv1.HubFrame) bool) *federationv1.HubFrame {
	w.Helper()
	deadline := time.After(patience)
	for {
		select {
		case frame, ok := <-w.frames:
			if !ok {
				w.Fatalf("cluster %s: the stream ended before %s", w.id, what)
			}
			if wanted(frame) {
				return frame
			}
		case <-deadline:
			w.Fatalf("cluster %s: no %s", w.id, what)
		}
	}
}

func (w *worker) report(r *federationv1.Report, envs ...string) *federationv1.ReportAck {
	w.Helper()
	w.sendReport(r, envs...)
	return w.next("ack", func(f *federationv1.HubFrame) bool { return f.GetReportAck().GetSequence() == r.GetSequence() }).GetReportAck()
}

func (w *worker) sendReport(r *federationv1.Report, envs ...string) {
	w.Helper()
	for _, name := range envs {
		r.Segments = append(r.Segments, &federationv1.EnvSegment{
			Key: segment.Key{Namespace: "default", Name: name}.Proto(),
			Members: []*federationv1.MemberSegment{
				{Name: "main", State: federationv1.MemberState_ACTIVE, ReadyIdle: 3, Idle: 3},
			},
		})
	}
	w.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Report{Report: r}})
}

func (w *worker) dispatched() *federationv1.Dispatch {
	w.Helper()
	return w.next("dispatch", func(f *federationv1.HubFrame) bool { return f.GetDispatch() != nil }).GetDispatch()
}

func (w *worker) receipt(d *federationv1.Dispatch) {
	w.Helper()
	w.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Receipt{Receipt: &federationv1.Receipt{Id: d.GetId()}}})
}

func (w *worker) answer(a *federationv1.Answer) {
	w.Helper()
	w.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Answer{Answer: a}})
}

// holders are the clusters that the fleet's view of an Env has.
func (h *hub) holders(env string) string {
	view := h.fleet.View(segment.Key{Namespace: "default", Name: env})
	if view == nil {
		return "none"
	}
	ids := map[string]bool{}
	for i := range view.Len() {
		ids[view.Candidate(i).Cluster.ID] = true
	}
	return fmt.Sprint(ids)
}
