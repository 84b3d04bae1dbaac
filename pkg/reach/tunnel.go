// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"context"
	"errors"
	"io"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// MaxMessage bounds one message of a Tunnel.
const MaxMessage = 32<<10 + 1

// Tunnel is a conversation with a sandbox, seen from its caller's side. One goroutine may receive while another one sends; Close may be called by any, and
// unblocks both.
type Tunnel interface {
	// Recv returns the next message, which is valid until the next call. io.EOF means that the other end has nothing more
	// to say; the call after that answers an error, once the conversation is over.
	Recv() ([]byte, error)
	// Send returns when the message has been taken, and does not keep it.
	Send(message []byte) error
	// CloseSend says that there is nothing more to say.
	CloseSend() error
	// Close ends the conversation. A reason is told to the other end where that can be done.
	Close(reason error)
	// Cut is closed when the conversation was ended before its time, from whatever side.
	Cut() <-chan struct{}
}

// Caller is who talks with a sandbox. It is like a Tunnel, and once it was told everything it leaves by itself, unless it
// has something to say.
type Caller interface {
	Recv() ([]byte, error)
	Send(message []byte) error
	CloseSend() error
	// Close is called when no Send is under way, except Close(nil).
	Close(reason error)
	// Hurry unblocks a Send that has been blocked for long.
	Hurry()
}

// Opener opens conversations.
type Opener interface {
	// Open reaches into a sandbox. The context bounds the opening, and says who asks.
	Open(ctx context.Context, id string, what *federationv1.ReachCall) (Tunnel, error)
}

// Join carries a conversation between a caller and a sandbox until it is over, and closes both ends. The error is why the
// sandbox was not heard to its end; that the caller left before is none.
func Join(caller Caller, sandbox Tunnel) error {
	heard, gone, over := make(chan error, 1), make(chan struct{}), make(chan struct{})
	go func() {
		select {
		case <-sandbox.Cut():
		case <-over:
		}
		select {
		case <-over:
		default:
			caller.Hurry()
		}
	}()
	go func() { heard <- tell(caller, sandbox) }()
	go func() {
		defer close(gone)
		listen(caller, sandbox)
	}()
	var err error
	select {
	case err = <-heard:
		close(over)
		if err != nil {
			caller.Close(err)
			sandbox.Close(err)
		}
		<-gone // one that has heard everything leaves by itself
		sandbox.Close(nil)
		caller.Close(nil)
	case <-gone:
		close(over)
		sandbox.Close(nil)
		caller.Close(nil)
		<-heard
	}
	if errors.Is(err, errLeft) {
		return nil
	}
	return err
}

var errLeft = errors.New("the caller has left")

// tell passes on what the sandbox says, to its end.
func tell(caller Caller, sandbox Tunnel) error {
	for {
		message, err := sandbox.Recv()
		switch {
		case errors.Is(err, io.EOF):
			_ = caller.CloseSend() // of a caller that has left listen hears
			return nil
		case err != nil:
			return err
		}
		if caller.Send(message) != nil {
			return errLeft
		}
	}
}

// listen passes on what the caller says, until it has left. A sandbox that takes no more may still have something to say.
func listen(caller Caller, sandbox Tunnel) {
	ended := false
	for {
		message, err := caller.Recv()
		switch {
		case errors.Is(err, io.EOF) && !ended:
			ended = true
			_ = sandbox.CloseSend() // that it is over tell hears
		case err != nil:
			return
		case !ended && sandbox.Send(message) != nil:
			ended = true
		}
	}
}

// Kind names what a call asks for; a label has these values alone.
func Kind(what *federationv1.ReachCall) string {
	switch what.GetWhat().(type) {
	case *federationv1.ReachCall_Exec:
		return "exec"
	case *federationv1.ReachCall_Logs:
		return "logs"
	case *federationv1.ReachCall_Port:
		return "port"
	default:
		return "unknown"
	}
}
