// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/problem"
)

const eastSandbox = "01hzzzzzzzzzzzzzzzzzzz0001-east"

// east simulates the worker of a cluster over a real connection. The test reads its dispatches and responds.
type east struct {
	t      *testing.T
	claims chan *federationv1.Dispatch
	all    atomic.Bool // claims has every dispatch: the hub lists sandboxes as well, from time to time
	acks   chan *federationv1.EndedAck
	send   chan *federationv1.WorkerFrame
	cut    chan struct{} // ends the current stream
	stop   func()
}

func attachEast(t *testing.T, address string, authority *pki.Authority) *east {
	t.Helper()
	files, err := authority.Cluster("east")
	must.Succeed(t, err)
	creds, err := link.LoadCredentials(files, logr.Discard())
	must.Succeed(t, err)
	e := &east{
		t: t, claims: make(chan *federationv1.Dispatch, 8), acks: make(chan *federationv1.EndedAck, 1),
		send: make(chan *federationv1.WorkerFrame, 8), cut: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var streams uint64
	go func() {
		done <- link.Run(ctx, link.Dial{Target: address, Credentials: creds, Clock: clock.RealClock{}, Log: logr.Discard()},
			func(ctx context.Context, hub federationv1.LinkClient) error {
				streams++
				return e.serve(ctx, hub, streams)
			})
	}()
	e.stop = sync.OnceFunc(func() {
		cancel()
		must.Succeed(t, <-done)
	})
	t.Cleanup(e.stop)
	return e
}

var errCut = errors.New("cut by the test")

// serve sends the Hello, reports one Env, and then passes frames on.
func (e *east) serve(ctx context.Context, hub federationv1.LinkClient, number uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := hub.Attach(ctx)
	if err != nil {
		return err
	}
	hello := &federationv1.Hello{Protocol: 1, ClusterUid: "uid", Term: "t1", Incarnation: 1, Stream: number}
	if _, err := introduce(stream, hello); err != nil {
		return err
	}
	received := make(chan error, 1)
	go func() { received <- e.receive(stream) }()
	for {
		select {
		case frame := <-e.send:
			if err := stream.Send(frame); err != nil {
				return err
			}
		case <-e.cut:
			cancel()
			<-received
			return errCut
		case err := <-received:
			return err
		}
	}
}

// introduce says hello, and unless that is refused begins and reports one Env.
func introduce(stream link.Stream, hello *federationv1.Hello) (*federationv1.Refused, error) {
	if err := stream.Send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Hello{Hello: hello}}); err != nil {
		return nil, err
	}
	first, err := stream.Recv()
	if err != nil || first.GetRefused() != nil {
		return first.GetRefused(), err
	}
	for _, frame := range []*federationv1.WorkerFrame{
		{Body: &federationv1.WorkerFrame_Begin{Begin: &federationv1.Begin{Incarnation: 1}}},
		{Body: &federationv1.WorkerFrame_Report{Report: &federationv1.Report{
			Sequence: hello.GetStream(), Last: true, Complete: true, Segments: []*federationv1.EnvSegment{{
				Key: &federationv1.EnvKey{Namespace: "default", Name: "demo"},
				Members: []*federationv1.MemberSegment{{
					Name: "pool", State: federationv1.MemberState_ACTIVE, Idle: 3, ReadyIdle: 3, QueueCapacity: 9,
				}},
			}},
		}}},
	} {
		if err := stream.Send(frame); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (e *east) receive(stream link.Stream) error {
	for {
		frame, err := stream.Recv()
		if err != nil {
			return err
		}
		switch {
		case frame.GetDispatch().GetClaim() != nil, frame.GetDispatch() != nil && e.all.Load():
			e.claims <- frame.GetDispatch()
		case frame.GetEndedAck() != nil:
			e.acks <- frame.GetEndedAck()
		}
	}
}

func (e *east) grant(d *federationv1.Dispatch) {
	e.send <- &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Answer{Answer: &federationv1.Answer{
		Id: d.GetId(), Disposition: federationv1.Disposition_DONE, Result: &federationv1.Answer_Sandbox{
			Sandbox: &sandboxv1.Sandbox{Id: eastSandbox, Namespace: "default", Env: "demo", Phase: sandboxv1.Phase_RUNNING, ClaimKey: "k"},
		},
	}}}
}

// TestAClaimGoesThroughTheLink covers the whole hub, from a client to a worker and back, over real connections.
func TestAClaimGoesThroughTheLink(t *testing.T) {
	o := testOptions(t)
	h := start(t, o)
	authority, err := pki.New(filepath.Dir(o.tls.CA))
	must.Succeed(t, err)
	worker := attachEast(t, h.link, authority)
	conn := testserver.Dial(t, h.api)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	waitForEnv(t, sandboxv1.NewEnvsClient(conn))
	hub := sandboxv1.NewSandboxesClient(conn)
	request := &sandboxv1.CreateSandboxRequest{Env: "demo", ClaimKey: "k", StartupTimeout: durationpb.New(30 * time.Second)}

	type result struct {
		sandbox *sandboxv1.Sandbox
		err     error
	}
	answered := make(chan result, 1)
	go func() {
		s, err := hub.CreateSandbox(ctx, request)
		answered <- result{s, err}
	}()
	first := <-worker.claims
	worker.cut <- struct{}{} // the outcome is unclear now
	second := <-worker.claims
	if a, b := first.GetClaim(), second.GetClaim(); a.GetKeyHash() == "" || a.GetKeyHash() != b.GetKeyHash() ||
		b.GetAttempt() != a.GetAttempt() {
		t.Fatalf("asked %v, then %v", a, b)
	}
	worker.grant(second)
	if got := <-answered; got.err != nil || got.sandbox.GetId() != eastSandbox || got.sandbox.GetClusterId() != "east" {
		t.Fatalf("answered %v %v", got.sandbox, got.err)
	}

	worker.send <- &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Ended{Ended: &federationv1.Ended{
		Batch: 7, Sandboxes: []*federationv1.EndedSandbox{{
			Sandbox: &sandboxv1.Sandbox{Id: eastSandbox, Namespace: "default", StopReason: "Completed"},
			KeyHash: second.GetClaim().GetKeyHash(), Attempt: second.GetClaim().GetAttempt(),
		}},
	}}}
	if ack := <-worker.acks; ack.GetBatch() != 7 {
		t.Fatalf("acknowledged %v", ack)
	}
	if got, err := hub.CreateSandbox(ctx, request); err != nil || got.GetPhase() != sandboxv1.Phase_ENDED ||
		got.GetStopReason() != "Completed" {
		t.Fatalf("after the end: %v %v", got, err)
	}

	// Without an attached worker nothing can have been sent, so no claim has to stay with the cluster.
	worker.stop()
	request.ClaimKey = "k2"
	_, err = hub.CreateSandbox(ctx, request)
	if e := problem.FromError(err); e == nil || e.Reason != problem.NoCapacity {
		t.Fatalf("without a worker: %v", err)
	}
}

func waitForEnv(t *testing.T, envs sandboxv1.EnvsClient) {
	t.Helper()
	wait.For(t, time.Minute, "the Env", func(ctx context.Context) error {
		env, err := envs.GetEnv(ctx, &sandboxv1.GetEnvRequest{Namespace: "default", Name: "demo"})
		return errors.Join(err, wait.If(env.GetIdle() == 3, env))
	})
}
