// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// keyHash names a claim key of the default namespace on the wire.
func keyHash(team, key string) string {
	sum := sha256.Sum256([]byte(team + "\x00" + namespace + "\x00" + key))
	return hex.EncodeToString(sum[:])[:32]
}

// linkConfig is TLS with the adversary's certificate.
func (a *attacker) linkConfig() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(a.Files.Cert, a.Files.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	ca, err := os.ReadFile(a.Files.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the CA: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: "127.0.0.1", NextProtos: []string{"h2"},
		MinVersion: tls.VersionTLS13}, nil
}

func (a *attacker) linkConn() (*grpc.ClientConn, error) {
	config, err := a.linkConfig()
	if err != nil {
		return nil, err
	}
	return grpc.NewClient("passthrough:///"+a.Link, grpc.WithTransportCredentials(credentials.NewTLS(config)), grpc.WithContextDialer(a.dial))
}

// onLink calls use with a connection to the link.
func (a *attacker) onLink(use func(conn *grpc.ClientConn)) error {
	conn, err := a.linkConn()
	if err != nil {
		return err
	}
	defer conn.Close()
	use(conn)
	return nil
}

// swarmLink calls f with one connection to the link again and again from n goroutines, until ctx ends.
func (a *attacker) swarmLink(ctx context.Context, n int, f func(conn *grpc.ClientConn, i int)) error {
	return a.onLink(func(conn *grpc.ClientConn) { swarm(ctx, n, func(i int) { f(conn, i) }) })
}

// evil is the adversary's end of a stream.
type evil struct {
	a      *attacker
	stream grpc.BidiStreamingClient[federationv1.WorkerFrame, federationv1.HubFrame]
	mu     sync.Mutex // of sending
	on     atomic.Pointer[func(*federationv1.Dispatch)]
	over   chan struct{}
}

var streams atomic.Uint64

// attached opens a stream, is welcomed and begins, has use send, and ends the stream. What the hub says on it is told. A hub
// that ends the stream is not an error.
func (a *attacker) attached(ctx context.Context, use func(e *evil) error, change ...func(*federationv1.Hello)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := a.linkConn()
	if err != nil {
		return err
	}
	defer conn.Close()
	return a.attach(ctx, conn, use, change...)
}

func (a *attacker) attach(ctx context.Context, conn *grpc.ClientConn, use func(e *evil) error, change ...func(*federationv1.Hello)) error {
	e, welcome, err := a.open(ctx, conn, change...)
	if err != nil {
		return a.ended(ctx, err)
	}
	if err := e.begin(welcome); err != nil {
		return a.ended(ctx, err)
	}
	go e.listen(ctx)
	err = e.report(&federationv1.Report{Sequence: 1, Last: true, Complete: true,
		Segments: []*federationv1.EnvSegment{segmentOf(honestEnv, member("evil"))}})
	if err == nil {
		err = use(e)
	}
	if err != nil {
		<-e.over // it tells why
		return nil
	}
	_ = e.stream.CloseSend()
	select {
	case <-e.over:
	case <-ctx.Done():
	}
	return nil
}

// ended tells how a stream ended. Without an answer, the attacker's time was over.
func (a *attacker) ended(ctx context.Context, err error) error {
	if ctx.Err() == nil || status.Code(err) != codes.Canceled && status.Code(err) != codes.DeadlineExceeded {
		a.tellError(err)
	}
	return nil
}

// open says Hello, and returns the Welcome.
func (a *attacker) open(
	ctx context.Context, conn *grpc.ClientConn, change ...func(*federationv1.Hello),
) (*evil, *federationv1.Welcome, error) {
	stream, err := federationv1.NewLinkClient(conn).Attach(ctx)
	if err != nil {
		return nil, nil, err
	}
	e := &evil{a: a, stream: stream, over: make(chan struct{})}
	hello := &federationv1.Hello{Protocol: 1, ClusterUid: "uid-" + a.Cluster, Term: "evil-" + fmt.Sprint(os.Getpid()), Stream: streams.Add(1),
		ResourceVersion: 100}
	for _, c := range change {
		c(hello)
	}
	if err := e.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Hello{Hello: hello}}); err != nil {
		if _, recvErr := stream.Recv(); recvErr != nil {
			return nil, nil, recvErr
		}
		return nil, nil, err
	}
	frame, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	if refused := frame.GetRefused(); refused != nil {
		a.tell("refused " + refused.GetReason())
		_, err := stream.Recv()
		return nil, nil, err
	}
	a.tell("welcome")
	return e, frame.GetWelcome(), nil
}

// listen tells every kind of frame until the stream ends.
func (e *evil) listen(ctx context.Context) {
	defer close(e.over)
	for {
		frame, err := e.stream.Recv()
		if err != nil {
			_ = e.a.ended(ctx, err)
			return
		}
		switch body := frame.GetBody().(type) {
		case *federationv1.HubFrame_ReportAck:
			e.a.tell("report_ack")
		case *federationv1.HubFrame_HeartbeatAck:
			e.a.tell("heartbeat_ack")
		case *federationv1.HubFrame_EndedAck:
			e.a.tell("ended_ack")
		case *federationv1.HubFrame_Foreign:
			e.a.tell("foreign")
		case *federationv1.HubFrame_Dispatch:
			e.a.tell("dispatch")
			if on := e.on.Load(); on != nil {
				(*on)(body.Dispatch)
			}
		}
	}
}

func (e *evil) send(frame *federationv1.WorkerFrame) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.a.attempts.Add(1)
	return e.stream.Send(frame)
}

// begin starts an incarnation after a Welcome.
func (e *evil) begin(w *federationv1.Welcome) error {
	begin := &federationv1.Begin{Incarnation: w.GetHighestIncarnation() + 1}
	return e.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Begin{Begin: begin}})
}

func (e *evil) report(r *federationv1.Report) error {
	return e.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Report{Report: r}})
}

func (e *evil) answer(id uint64, s *sandboxv1.Sandbox) error {
	return e.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Answer{Answer: &federationv1.Answer{
		Id: id, Disposition: federationv1.Disposition_DONE, CoveredBy: 1, Result: &federationv1.Answer_Sandbox{Sandbox: s},
	}}})
}

// usual is a report as workers send it, of other counts each time.
func (e *evil) usual(n uint64) *federationv1.Report {
	m := member("evil")
	m.Running, m.Desired = int32(n%1000), 1000
	return &federationv1.Report{Sequence: n, Last: true, Segments: []*federationv1.EnvSegment{segmentOf(honestEnv, m)}}
}

// sandbox is an id that the adversary's cluster may mint.
func (e *evil) sandbox(n int) string { return fmt.Sprintf("01hzzzzzzzzzzzzz%010d-%s", n, e.a.Cluster) }
