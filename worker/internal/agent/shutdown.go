// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
)

const (
	// drainPatience is how long calls may continue once the worker must end. Waiting claims end at once; only writes remain.
	drainPatience = 3 * time.Second
	// partingPatience is how long the hub may take to end its side of a stream after the worker has ended its own.
	partingPatience = time.Second
	// takeover is the time after which a new leader can be expected.
	takeover = time.Second
)

// ending is the state of the link's orderly end.
type ending struct {
	mu     *sync.Mutex // guards begun against starting calls
	begun  context.Context
	begin  context.CancelFunc
	closed chan struct{} // closed to make this side end the stream
	late   context.Context
	cut    context.CancelFunc // cancels late, when patience has run out
	// unlinked is closed when the link has ended for good.
	unlinked chan struct{}
}

func newEnding() ending {
	e := ending{mu: &sync.Mutex{}, closed: make(chan struct{}), unlinked: make(chan struct{})}
	e.begun, e.begin = context.WithCancel(context.Background())
	e.late, e.cut = context.WithCancel(context.Background())
	return e
}

// shutdown ends the link when the process must end. The manager stops it before the leader's runnables, because followers run it as well.
// The leader therefore still serves claims meanwhile, and can end the sandboxes of unanswered calls.
type shutdown struct{ agent *Agent }

func (shutdown) NeedLeaderElection() bool { return false }

// Start waits for the end of the process, and then ends the link.
func (f shutdown) Start(ctx context.Context) error {
	<-ctx.Done()
	f.agent.opts.Sandboxes.StopRecording()
	f.agent.closeLink()
	return nil
}

// closeLink cancels waiting claims, lets all other calls finish, and ends the stream so that every answer arrives.
func (a *Agent) closeLink() {
	a.ending.mu.Lock()
	a.ending.begin()
	leads := a.connected.Load()
	a.ending.mu.Unlock()
	defer a.ending.cut()
	if !leads {
		return
	}
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		a.executing.Wait()
	}()
	a.within(drainPatience, idle)
	close(a.ending.closed)
	a.within(partingPatience, a.ending.unlinked)
}

func (a *Agent) within(patience time.Duration, done <-chan struct{}) {
	timer := a.opts.Clock.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C():
	}
}

// execute carries out a call in its own goroutine. It returns false if the worker is ending.
func (a *Agent) execute(call func()) bool {
	a.ending.mu.Lock()
	defer a.ending.mu.Unlock()
	if a.ending.begun.Err() != nil {
		return false
	}
	a.executing.Go(call)
	return true
}

// handingOver returns the answer to a call that arrives too late. The call was not checked, so it may be repeated, here or elsewhere.
func handingOver(d *federationv1.Dispatch) *federationv1.Answer {
	return failed(d, federationv1.Disposition_STALE_SESSION, errHandingOver())
}

func errHandingOver() *problem.Error {
	return problem.New(problem.Unavailable, "the worker is ending, and another one takes over").WithRetryAfter(takeover)
}

// closeSend ends this side of the stream. When the hub has read everything it ends the other side, and read returns.
func (u *uplink) closeSend() error {
	close(u.sentAll)
	if err := u.sendReceipts(); err != nil {
		return err
	}
	if err := u.stream.CloseSend(); err != nil {
		return fmt.Errorf("ending the stream: %w", err)
	}
	return nil
}
