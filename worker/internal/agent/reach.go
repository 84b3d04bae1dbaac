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

// conversations are the tunnels of the hub's callers over one stream.
type conversations struct {
	tunnels *link.Tunnels
	joined  sync.WaitGroup

	mu   sync.Mutex // guards over against starting conversations
	over bool
	idle chan struct{} // closed when retired conversations have ended on their own
}

// join runs a conversation. It returns false if the stream is over.
func (c *conversations) join(carry func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.joined.Go(carry)
	return true
}

// retire stops new conversations. Those under way continue; their connection closes with the last one.
func (c *conversations) retire() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.idle = make(chan struct{})
	go func() {
		defer close(c.idle)
		c.joined.Wait()
		_ = c.tunnels.Close()
	}()
}

func (c *conversations) ended() bool {
	select {
	case <-c.idle:
		return true
	default:
		return false
	}
}

// end ends all conversations.
func (c *conversations) end() error {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	err := c.tunnels.Close()
	if c.idle != nil {
		<-c.idle
	}
	c.joined.Wait()
	return err
}

var errStreamOver = problem.New(problem.Unavailable, "the stream to the hub has ended").WithRetryAfter(time.Second)

// reachOver lets the hub's callers reach sandboxes while a stream lasts. end stops that and ends their conversations. If the stream ends
// for a new certificate, its conversations continue alongside the next stream.
func (a *Agent) reachOver(hub federationv1.LinkClient) (end func(why error)) {
	c := &conversations{tunnels: a.opts.Hub.NewTunnels(hub)}
	a.conversations.Store(c)
	return func(why error) {
		a.conversations.CompareAndSwap(c, nil)
		if errors.Is(why, link.ErrRenewed) {
			c.retire()
			a.retired = append(slices.DeleteFunc(a.retired, (*conversations).ended), c)
			return
		}
		a.endConversations(c)
	}
}

// endConversations ends the given conversations and the retired ones.
func (a *Agent) endConversations(of ...*conversations) {
	for _, c := range append(a.retired, of...) {
		if err := c.end(); err != nil {
			a.opts.Log.Info("Could not close the connection for tunnels", "error", err.Error())
		}
	}
	a.retired = nil
}

// reach opens a sandbox's end of a conversation and the tunnel that the hub waits for. The conversation continues after the answer.
func (a *Agent) reach(ctx context.Context, call *federationv1.ReachCall) error {
	c := a.conversations.Load()
	switch {
	case a.opts.Reach == nil:
		return problem.New(problem.Unimplemented, "this worker does not reach into sandboxes")
	case c == nil:
		return errStreamOver
	}
	sandbox, err := a.opts.Reach.Open(ctx, call.GetSandboxId(), call)
	if err != nil {
		return err
	}
	caller, err := c.tunnels.Open(ctx, call.GetToken())
	if err != nil {
		sandbox.Close(err)
		return problem.New(problem.Unavailable, "the hub did not take a tunnel: %w", err).WithRetryAfter(time.Second)
	}
	if c.join(func() {
		if err := reach.Join(caller, sandbox); err != nil {
			a.opts.Log.V(1).Info("A tunnel broke off", "sandbox", call.GetSandboxId(), "kind", reach.Kind(call), "reason", err.Error())
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
	c := a.conversations.Load()
	if c == nil {
		return errStreamOver
	}
	hub, err := c.tunnels.Open(ctx, call.GetToken())
	if err != nil {
		return problem.New(problem.Unavailable, "the hub did not take a tunnel: %w", err).WithRetryAfter(time.Second)
	}
	if c.join(func() {
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
	c := a.conversations.Load()
	switch {
	case a.opts.Kubernetes == nil:
		return problem.New(problem.Unimplemented, "this cluster's worker does not serve its API server: it runs without --serve-kubernetes")
	case c == nil:
		return errStreamOver
	}
	serve, leave, err := a.opts.Kubernetes.Admit(call)
	if err != nil {
		return err
	}
	hub, err := c.tunnels.Open(ctx, call.GetToken())
	if err != nil {
		leave()
		return problem.New(problem.Unavailable, "the hub did not take a tunnel: %w", err).WithRetryAfter(time.Second)
	}
	if c.join(func() { serve(hub) }) {
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
