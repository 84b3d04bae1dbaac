// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// helloLoops begins streams and goes when it is welcome.
func helloLoops(ctx context.Context, a *attacker) error {
	return a.swarmLink(ctx, 4, func(conn *grpc.ClientConn, _ int) {
		short, cancel := context.WithCancel(ctx)
		defer cancel()
		if _, _, err := a.open(short, conn); err != nil {
			_ = a.ended(ctx, err)
		}
	})
}

// beginLoops begins a new term with each stream, which the hub writes down.
func beginLoops(ctx context.Context, a *attacker) error {
	return a.swarmLink(ctx, 1, func(conn *grpc.ClientConn, _ int) {
		short, cancel := context.WithCancel(ctx)
		defer cancel()
		term := fmt.Sprint(time.Now().UnixNano())
		e, welcome, err := a.open(short, conn, func(h *federationv1.Hello) { h.Term, h.Stream = term, 1 })
		if err == nil {
			err = e.begin(welcome)
		}
		if err == nil {
			err = e.report(e.usual(1))
		}
		if err == nil {
			_, err = e.stream.Recv()
		}
		_ = a.ended(ctx, err)
	})
}

func largeHellos(ctx context.Context, a *attacker) error {
	n := 0
	swarm(ctx, 1, func(int) {
		n++
		_ = a.attached(ctx, func(*evil) error { return nil }, func(h *federationv1.Hello) {
			switch long := strings.Repeat("x", 3<<20); n % 4 {
			case 0:
				h.Version = long
			case 1:
				h.ClusterUid = long
			case 2:
				h.Term = long
			default:
				h.Unacknowledged = make2(100_000, func(i int) *federationv1.Unacknowledged { return &federationv1.Unacknowledged{Dispatch: uint64(i)} })
			}
		})
	})
	return nil
}

// unopenedStreams opens streams and says nothing on them.
func unopenedStreams(ctx context.Context, a *attacker) error {
	return a.onLink(func(conn *grpc.ClientConn) {
		atOnce(a.size(500, 5000), func(int) {
			a.attempts.Add(1)
			stream, err := federationv1.NewLinkClient(conn).Attach(ctx)
			if err == nil {
				_, err = stream.Recv()
			}
			_ = a.ended(ctx, err)
		})
	})
}

// tunnel opens a tunnel with a first frame, and tells whether there is one.
func (a *attacker) tunnel(ctx context.Context, conn *grpc.ClientConn, first *federationv1.TunnelFrame) {
	a.attempts.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := federationv1.NewLinkClient(conn).Tunnel(ctx)
	if err == nil {
		_ = stream.Send(first)
		header, headerErr := stream.Header()
		begun := headerErr == nil && len(header.Get("content-type")) > 0 && stream.Context().Err() == nil
		if _, err = stream.Recv(); err == nil && begun {
			a.tell("tunnel")
		}
	}
	_ = a.ended(ctx, err)
}

func wrongTokens(ctx context.Context, a *attacker) error {
	return a.swarmLink(ctx, 16, func(conn *grpc.ClientConn, i int) {
		for _, token := range []string{"", "x", strings.Repeat("x", 1<<20), fmt.Sprint(i), "\xff"} {
			a.tunnel(ctx, conn, &federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Token{Token: strings.ToValidUTF8(token, "")}})
		}
	})
}

// tokenlessTunnels opens tunnels that name no token.
func tokenlessTunnels(ctx context.Context, a *attacker) error {
	return a.onLink(func(conn *grpc.ClientConn) {
		atOnce(a.size(2000, 20_000), func(int) {
			a.attempts.Add(1)
			stream, err := federationv1.NewLinkClient(conn).Tunnel(ctx)
			if err == nil {
				a.tell("opened")
				_, err = stream.Recv()
			}
			_ = a.ended(ctx, err)
		})
	})
}

// manyLinks opens as many connections with the certificate as it can, and holds them.
func manyLinks(ctx context.Context, a *attacker) error {
	config, err := a.linkConfig()
	if err != nil {
		return err
	}
	var open sync.WaitGroup
	each(ctx, a.size(1000, 5000), func(int) {
		a.attempts.Add(1)
		conn, ok := a.connect(ctx, a.Link)
		if !ok {
			return
		}
		secure := tls.Client(conn, config)
		_, err := secure.Read(make([]byte, 1)) // the hub's settings
		if err == nil {
			a.tell("admitted")
		}
		open.Go(func() {
			defer conn.Close()
			for err == nil {
				_, err = secure.Read(make([]byte, 1<<10))
			}
			a.tell(hungUp(err))
		})
	})
	open.Wait()
	return nil
}

// otherServices calls what the link does not serve.
func otherServices(ctx context.Context, a *attacker) error {
	methods := []string{"/atoll.federation.v1.Replicas/Reach", createMethod, sandboxv1.Hub_BackupHub_FullMethodName,
		"/grpc.health.v1.Health/Check", "/x/y"}
	return a.swarmLink(ctx, 8, func(conn *grpc.ClientConn, i int) {
		a.attempts.Add(1)
		_ = a.ended(ctx, conn.Invoke(ctx, methods[(i+int(a.attempts.Load()))%len(methods)], []byte{}, nil, grpc.ForceCodec(raw{})))
	})
}

// linkFlood writes raw frames on the link, with the certificate.
func linkFlood(ctx context.Context, a *attacker, write func(c *h2, i uint32) error) error {
	config, err := a.linkConfig()
	if err != nil {
		return err
	}
	a.frames(ctx, 4, a.Link, config, write)
	return nil
}

func linkPings(ctx context.Context, a *attacker) error {
	return linkFlood(ctx, a, func(c *h2, i uint32) error { return c.WritePing(false, [8]byte{byte(i)}) })
}

func linkResets(ctx context.Context, a *attacker) error {
	return linkFlood(ctx, a, func(c *h2, i uint32) error {
		header := calling(federationv1.Link_Attach_FullMethodName)
		if err := c.begin(2*i+1, header); err != nil {
			return err
		}
		if i%16 == 0 {
			return nil // it stays, as a stream that does not begin
		}
		return c.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
	})
}

// unreadStream reports and reads nothing of what the hub sends.
func unreadStream(ctx context.Context, a *attacker) error {
	return a.swarmLink(ctx, 1, func(conn *grpc.ClientConn, _ int) {
		short, cancel := context.WithCancel(ctx)
		defer cancel()
		e, welcome, err := a.open(short, conn)
		if err != nil {
			_ = a.ended(ctx, err)
			return
		}
		err = e.begin(welcome)
		for n := uint64(1); err == nil && ctx.Err() == nil; n++ {
			if err = e.report(e.usual(n)); err == nil {
				err = e.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Heartbeat{Heartbeat: &federationv1.Heartbeat{Number: n}}})
			}
			a.tell("sent")
		}
		for err != nil && ctx.Err() == nil {
			if _, err := e.stream.Recv(); err != nil {
				_ = a.ended(ctx, err)
				return
			}
		}
	})
}

// twoStreams lets two workers of one name replace each other.
func twoStreams(ctx context.Context, a *attacker) error {
	swarm(ctx, 2, func(i int) {
		_ = a.attached(ctx, func(*evil) error { return nil }, func(h *federationv1.Hello) {
			h.Term, h.Stream = fmt.Sprint("term-", i), math.MaxUint64
		})
	})
	return nil
}

// serving draws claims of the adversary's own team to its cluster, and responds to them.
func serving(ctx context.Context, a *attacker, answer func(e *evil, d *federationv1.Dispatch)) error {
	env := "lure-" + a.Cluster
	return a.attached(ctx, func(e *evil) error {
		on := func(d *federationv1.Dispatch) {
			_ = e.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Receipt{Receipt: &federationv1.Receipt{Id: d.GetId()}}})
			answer(e, d)
		}
		e.on.Store(&on)
		m := member("lure")
		m.Idle, m.ReadyIdle, m.Desired, m.Current, m.CanGrow, m.QueueCapacity = 1000, 1000, 1000, 1000, true, 1000
		if err := e.report(&federationv1.Report{Sequence: 2, Last: true, Segments: []*federationv1.EnvSegment{segmentOf(env, m)}}); err != nil {
			return err
		}
		c, err := a.as(ctx, "mallory")
		if err != nil {
			return err
		}
		swarm(ctx, 4, func(i int) {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			r := &create{Namespace: namespace, Env: env}
			if i%2 == 0 {
				r.ClaimKey = fmt.Sprint("lured-", time.Now().UnixNano())
			}
			s, err := c.CreateSandbox(short, r)
			switch {
			case err == nil && strings.HasSuffix(s.GetId(), "-"+a.Cluster) && s.GetTeam() == "mallory":
				a.tell("caller: its own")
			case err == nil:
				a.tell("caller: OK")
			default:
				a.tell("caller: " + status.Code(err).String())
			}
		})
		return nil
	})
}

// lyingAnswers responds to claims with another cluster's sandbox.
func lyingAnswers(ctx context.Context, a *attacker) error {
	return serving(ctx, a, func(e *evil, d *federationv1.Dispatch) {
		_ = e.answer(d.GetId(), &sandboxv1.Sandbox{
			Id: a.Canary, ClusterId: "west", Namespace: namespace, Env: honestEnv, Team: "ann", ClaimKey: canaryKey, Phase: sandboxv1.Phase_RUNNING,
			PodUid: "p",
		})
	})
}

// bareAnswers responds to claims with dispositions alone: no sandbox, no error.
func bareAnswers(ctx context.Context, a *attacker) error {
	return serving(ctx, a, func(e *evil, d *federationv1.Dispatch) {
		_ = e.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Answer{Answer: &federationv1.Answer{
			Id: d.GetId(), Disposition: federationv1.Disposition(d.GetId() % uint64(len(federationv1.Disposition_name))),
		}}})
	})
}

// largeAnswers responds to claims with as much as a frame holds.
func largeAnswers(ctx context.Context, a *attacker) error {
	return serving(ctx, a, func(e *evil, d *federationv1.Dispatch) {
		_ = e.answer(d.GetId(), &sandboxv1.Sandbox{
			Id: e.sandbox(int(d.GetId())), Namespace: namespace, Team: "mallory", Phase: sandboxv1.Phase_RUNNING, PodUid: "p",
			FailureMessage: strings.Repeat("x", 4<<20-1<<10),
		})
	})
}
