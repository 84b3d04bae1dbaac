// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/ports"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/segment"
)

// hub is the other end of the link, as far as a test needs one: it keeps what it receives, as the protocol defines, and sends
// what the test says. It cannot import the hub's own packages, on purpose.
type hub struct {
	*world
	federationv1.UnimplementedLinkServer
	address string
	server  *grpc.Server
	done    chan error

	attached chan *session
	tunnels  chan *link.Tunnel

	mu       sync.Mutex
	welcome  federationv1.Welcome
	view     segment.Snapshot
	onHello  func() // before the welcome
	restored bool   // what heartbeats get as a response
	muted    bool   // heartbeats get no response
	noAcks   bool   // reports get none
	// refusedKey, if set, is asked about the key of each certificate.
	refusedKey func(key string) error
}

// session is one stream.
type session struct {
	*hub
	stream grpc.BidiStreamingServer[federationv1.WorkerFrame, federationv1.HubFrame]
	key    string // hash of that of the worker's certificate
	hello  *federationv1.Hello
	begin  *federationv1.Begin
	frames chan *federationv1.WorkerFrame // all but reports
	over   chan struct{}                  // closed when the worker has left
	hangUp chan struct{}                  // closed by the test

	sending  sync.Mutex
	reports  []*federationv1.Report // the last chunk of each; under mu
	assembly []*federationv1.Report
	beat     *federationv1.Heartbeat // the last; under mu
}

func newHub(w *world) *hub {
	w.Helper()
	h := &hub{world: w, attached: make(chan *session, 16), tunnels: make(chan *link.Tunnel, 16)}
	h.welcome.Protocol, h.welcome.HeartbeatInterval = 1, durationpb.New(200*time.Millisecond)
	addresses, err := ports.Free(1) // no other program takes it while the hub is killed
	w.Must(err)
	h.serve(addresses[0])
	w.Cleanup(h.kill)
	return h
}

// serve listens; with the address of a hub that was killed it is that hub's successor.
func (h *hub) serve(address string) {
	h.Helper()
	files, err := h.ca.Hub("127.0.0.1")
	h.Must(err)
	creds, err := link.LoadCredentials(files, logr.Discard())
	h.Must(err)
	listener, err := net.Listen("tcp", address)
	h.Must(err)
	h.address = listener.Addr().String()
	h.server = link.NewServer(creds, nil, logr.Discard())
	federationv1.RegisterLinkServer(h.server, h)
	h.done = make(chan error, 1)
	server, done := h.server, h.done
	go func() { done <- server.Serve(listener) }()
}

func (h *hub) kill() {
	if h.server == nil {
		return
	}
	h.server.Stop()
	if err := <-h.done; err != nil {
		h.Error(err)
	}
	h.server = nil
}

// Tunnel takes a tunnel of the worker, whatever its token is.
func (h *hub) Tunnel(stream link.TunnelStream) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	tunnel := link.NewTunnel(stream)
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	h.tunnels <- tunnel
	return tunnel.Serve()
}

func (h *hub) Attach(stream grpc.BidiStreamingServer[federationv1.WorkerFrame, federationv1.HubFrame]) error {
	who, err := link.PeerCluster(stream.Context())
	if err != nil {
		return err
	}
	h.mu.Lock()
	refuse := h.refusedKey
	h.mu.Unlock()
	if refuse != nil {
		if err := refuse(link.PeerKey(stream.Context())); err != nil {
			return status.Error(codes.PermissionDenied, err.Error())
		}
	}
	s := &session{hub: h, stream: stream, key: link.PeerKey(stream.Context()), frames: make(chan *federationv1.WorkerFrame, 1024),
		over:   make(chan struct{}),
		hangUp: make(chan struct{})}
	frame, err := stream.Recv()
	if err != nil {
		return err
	}
	s.hello = frame.GetHello()
	h.mu.Lock()
	onHello := h.onHello
	h.mu.Unlock()
	if onHello != nil {
		onHello()
	}
	h.mu.Lock()
	welcome := &federationv1.Welcome{
		Protocol: h.welcome.Protocol, ClusterId: who, HeartbeatInterval: h.welcome.HeartbeatInterval,
		HighestIncarnation: h.welcome.HighestIncarnation, HighestTerm: h.welcome.HighestTerm, EtcdRestored: h.welcome.EtcdRestored,
		Allotments: h.welcome.Allotments,
	}
	welcome.Deltas = s.hello.GetAcknowledged() > 0 && s.hello.GetDigest() == h.view.Digest()
	h.mu.Unlock()
	if err := stream.Send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Welcome{Welcome: welcome}}); err != nil {
		return err
	}
	if frame, err = stream.Recv(); err != nil {
		return err
	}
	s.begin = frame.GetBegin()
	go s.read()
	h.attached <- s
	select {
	case <-s.over:
	case <-s.hangUp:
	}
	return nil
}

func (s *session) read() {
	defer close(s.over)
	for {
		frame, err := s.stream.Recv()
		if err != nil {
			return
		}
		switch body := frame.GetBody().(type) {
		case *federationv1.WorkerFrame_Report:
			s.report(body.Report)
		case *federationv1.WorkerFrame_Heartbeat:
			s.mu.Lock()
			s.beat = body.Heartbeat
			ack := &federationv1.HeartbeatAck{Number: s.beat.GetNumber(), EtcdRestored: s.restored}
			muted := s.muted
			s.mu.Unlock()
			if !muted {
				s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_HeartbeatAck{HeartbeatAck: ack}})
			}
		default:
			s.frames <- frame
		}
	}
}

// report expects what the protocol defines: whole reports, in order.
func (s *session) report(r *federationv1.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assembly = append(s.assembly, r)
	if !r.GetLast() {
		return
	}
	if r.GetComplete() {
		s.view = segment.Snapshot{}
	}
	for i, chunk := range s.assembly {
		if int(chunk.GetChunk()) != i {
			s.Errorf("chunk %d has the number %d", i, chunk.GetChunk())
		}
		s.apply(chunk)
	}
	s.assembly = nil
	if s.view.Digest() != r.GetDigest() {
		s.Errorf("report %d: its digest is not that of what it says", r.GetSequence())
	}
	s.reports = append(s.reports, r)
	if s.noAcks {
		return
	}
	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_ReportAck{ReportAck: &federationv1.ReportAck{Sequence: r.GetSequence()}}})
}

func (s *session) apply(r *federationv1.Report) {
	var delta segment.Delta
	for _, p := range r.GetSegments() {
		seg, err := segment.FromProto(p)
		if err != nil {
			s.Errorf("report %d: %v", r.GetSequence(), err)
			continue
		}
		delta.Changed = append(delta.Changed, seg)
	}
	for _, p := range r.GetRemoved() {
		delta.Removed = append(delta.Removed, segment.Key{Namespace: p.GetNamespace(), Name: p.GetName()})
	}
	s.view.Apply(delta)
}

// send ignores a broken stream: the test sees it by other means.
func (s *session) send(frame *federationv1.HubFrame) {
	s.sending.Lock()
	defer s.sending.Unlock()
	_ = s.stream.Send(frame)
}

func (s *session) dispatch(d *federationv1.Dispatch) {
	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Dispatch{Dispatch: d}})
}

// ask dispatches a call, and returns its answer.
func (s *session) ask(id uint64, d *federationv1.Dispatch) *federationv1.Answer {
	s.Helper()
	d.Id, d.Incarnation = id, 1
	s.dispatch(d)
	return s.answer(id)
}

// next returns the next frame of the kind that is wanted.
func (s *session) next(what string, wanted func(*federationv1.WorkerFrame) bool) *federationv1.WorkerFrame {
	s.Helper()
	deadline := time.After(patience)
	for {
		select {
		case frame := <-s.frames:
			if wanted(frame) {
				return frame
			}
		case <-deadline:
			s.Fatalf("no %s", what)
		}
	}
}

func (s *session) answer(id uint64) *federationv1.Answer {
	s.Helper()
	receipt := s.next("receipt or answer", func(f *federationv1.WorkerFrame) bool { return f.GetReceipt() != nil || f.GetAnswer() != nil })
	if receipt.GetReceipt().GetId() != id {
		s.Fatalf("dispatch %d was not confirmed first: %v", id, receipt)
	}
	return s.next("answer", func(f *federationv1.WorkerFrame) bool { return f.GetAnswer().GetId() == id }).GetAnswer()
}

func (h *hub) session() *session {
	h.Helper()
	select {
	case s := <-h.attached:
		return s
	case <-time.After(patience):
		h.Fatal("no worker attached")
		return nil
	}
}

// set changes what the hub does.
func (h *hub) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

func (h *hub) mute(muted bool) { h.set(func() { h.muted = muted }) }

// beats waits for a stream's n-th heartbeat.
func (s *session) beats(n uint64) {
	s.Helper()
	s.Eventually(fmt.Sprintf("heartbeat %d", n), func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		got := s.beat.GetNumber()
		return wait.If(got >= n, got)
	})
}

// shows waits until the view of an Env has so many ready idle Pods; -1 for no such Env.
func (h *hub) shows(env string, readyIdle int32) {
	h.Helper()
	h.Eventually(fmt.Sprintf("%d ready idle Pods of %s at the hub", readyIdle, env), func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		got := int32(-1)
		if s := h.view.Get(segment.Key{Namespace: h.Namespace, Name: env}); s != nil {
			got = s.Totals().ReadyIdle
		}
		return wait.If(got == readyIdle, got)
	})
}
