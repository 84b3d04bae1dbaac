// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/worker/internal/disposition"
)

// tunnels are those of the hub's callers over one stream.
type tunnels struct {
	conn   *link.Tunnels
	joined sync.WaitGroup

	mu   sync.Mutex // guards over against starting tunnels
	over bool
	idle chan struct{} // closed when retired tunnels have ended on their own
}

// join carries a tunnel. It returns false if the stream is over.
func (t *tunnels) join(carry func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.joined.Go(carry)
	return true
}

// retire stops new tunnels. Those under way continue; their connection closes with the last one.
func (t *tunnels) retire() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.idle = make(chan struct{})
	go func() {
		defer close(t.idle)
		t.joined.Wait()
		_ = t.conn.Close()
	}()
}

func (t *tunnels) ended() bool {
	select {
	case <-t.idle:
		return true
	default:
		return false
	}
}

// end ends all tunnels.
func (t *tunnels) end() error {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	err := t.conn.Close()
	if t.idle != nil {
		<-t.idle
	}
	t.joined.Wait()
	return err
}

var errStreamOver = problem.New(problem.Unavailable, "the stream to the hub has ended").WithRetryAfter(time.Second)

// serveTunnels lets the hub's callers reach sandboxes while a stream lasts. end stops that and ends their tunnels. If the stream ends for
// a new certificate, its tunnels continue alongside the next stream.
func (a *Agent) serveTunnels(hub federationv1.LinkClient) (end func(why error)) {
	t := &tunnels{conn: a.opts.Hub.NewTunnels(hub)}
	a.tunnels.Store(t)
	return func(why error) {
		a.tunnels.CompareAndSwap(t, nil)
		if errors.Is(why, link.ErrRenewed) {
			t.retire()
			a.retired = append(slices.DeleteFunc(a.retired, (*tunnels).ended), t)
			return
		}
		a.endTunnels(t)
	}
}

// endTunnels ends the given tunnels and the retired ones.
func (a *Agent) endTunnels(of ...*tunnels) {
	for _, t := range append(a.retired, of...) {
		if err := t.end(); err != nil {
			a.opts.Log.Info("Could not close the connection for tunnels", "error", err.Error())
		}
	}
	a.retired = nil
}

// reach opens a sandbox's end of a conversation and the tunnel that the hub waits for. The conversation continues after the answer.
func (a *Agent) reach(ctx context.Context, call *federationv1.ReachCall) error {
	t := a.tunnels.Load()
	switch {
	case a.opts.Reach == nil:
		return problem.New(problem.Unimplemented, "this worker does not reach into sandboxes")
	case t == nil:
		return errStreamOver
	}
	sandbox, err := a.opts.Reach.Open(ctx, call.GetSandboxId(), call)
	if err != nil {
		return err
	}
	caller, err := t.conn.Open(ctx, call.GetToken())
	if err != nil {
		sandbox.Close(err)
		return problem.New(problem.Unavailable, "the hub did not accept the tunnel: %w", err).WithRetryAfter(time.Second)
	}
	if t.join(func() {
		if err := reach.Join(caller, sandbox); err != nil {
			a.opts.Log.V(1).Info("A tunnel broke", "sandbox", call.GetSandboxId(), "kind", reach.Kind(call), "reason", err.Error())
		}
	}) {
		return nil
	}
	sandbox.Close(errStreamOver)
	caller.Close(nil)
	return errStreamOver
}

// watch opens the tunnel that the hub waits for. After the answer, it sends changes of sandboxes through it.
func (a *Agent) watch(ctx context.Context, call *federationv1.WatchCall) error {
	t := a.tunnels.Load()
	if t == nil {
		return errStreamOver
	}
	hub, err := t.conn.Open(ctx, call.GetToken())
	if err != nil {
		return problem.New(problem.Unavailable, "the hub did not accept the tunnel: %w", err).WithRetryAfter(time.Second)
	}
	if t.join(func() {
		hub.Feed(func(ctx context.Context, send func(*federationv1.SandboxChanges) error) error {
			return a.opts.Sandboxes.Feed(ctx, call.GetNamespace(), call.GetTeam(), send)
		})
	}) {
		return nil
	}
	hub.Close(nil)
	return errStreamOver
}

// kubernetes opens the tunnel that the hub waits for. After the answer, it forwards the request from the tunnel to the API server.
func (a *Agent) kubernetes(ctx context.Context, call *federationv1.KubernetesCall) error {
	t := a.tunnels.Load()
	switch {
	case a.opts.Kubernetes == nil:
		return problem.New(problem.Unimplemented, "this cluster's worker does not serve its API server: it runs without --serve-kubernetes")
	case t == nil:
		return errStreamOver
	}
	serve, leave, err := a.opts.Kubernetes.Admit(call)
	if err != nil {
		return err
	}
	hub, err := t.conn.Open(ctx, call.GetToken())
	if err != nil {
		leave()
		return problem.New(problem.Unavailable, "the hub did not accept the tunnel: %w", err).WithRetryAfter(time.Second)
	}
	if t.join(func() { serve(hub) }) {
		return nil
	}
	leave()
	hub.Close(nil)
	return errStreamOver
}

// dispositionOf maps an error to where a claim may go next. For calls that are not about claims, an error is final.
func dispositionOf(d *federationv1.Dispatch, err error) federationv1.Disposition {
	if d.GetReach() != nil || d.GetWatch() != nil || d.GetKubernetes() != nil || d.GetRefresh() != nil {
		return federationv1.Disposition_DONE
	}
	return disposition.Of(err)
}
