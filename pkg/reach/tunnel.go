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

// Tunnel is a conversation with a sandbox, from its caller's side. One goroutine may receive while another one sends. Any
// goroutine may call Close, which unblocks both.
type Tunnel interface {
	// Recv returns the next message, which is valid until the next call. io.EOF means that the other end has sent its last
	// message; the next call returns an error when the conversation is over.
	Recv() ([]byte, error)
	// Send returns when the message was taken, and does not keep it.
	Send(message []byte) error
	// CloseSend marks the last message as sent.
	CloseSend() error
	// Close ends the conversation, and sends the reason to the other end where possible.
	Close(reason error)
	// Cut is closed when the conversation ends early, from either side.
	Cut() <-chan struct{}
}

// Caller is the peer of a sandbox. It is like a Tunnel. After the last message it disconnects, unless it has more to send.
type Caller interface {
	Recv() ([]byte, error)
	Send(message []byte) error
	CloseSend() error
	// Close is called when no Send is running, except Close(nil).
	Close(reason error)
	// Hurry unblocks a Send that has been blocked for long.
	Hurry()
}

// Opener opens conversations.
type Opener interface {
	// Open connects to a sandbox. The context bounds the opening, and identifies the caller.
	Open(ctx context.Context, id string, what *federationv1.ReachCall) (Tunnel, error)
}

// Join carries a conversation between a caller and a sandbox until it is over, and closes both ends. It returns why the sandbox
// was not received to its end; a caller that disconnects first is no error.
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
		<-gone // the caller disconnects after the last message
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

// tell copies from the sandbox to the caller, to the end.
func tell(caller Caller, sandbox Tunnel) error {
	for {
		message, err := sandbox.Recv()
		switch {
		case errors.Is(err, io.EOF):
			_ = caller.CloseSend() // listen notices a caller that has disconnected
			return nil
		case err != nil:
			return err
		}
		if caller.Send(message) != nil {
			return errLeft
		}
	}
}

// listen copies from the caller to the sandbox until the caller disconnects. A sandbox that takes no more may still send.
func listen(caller Caller, sandbox Tunnel) {
	ended := false
	for {
		message, err := caller.Recv()
		switch {
		case errors.Is(err, io.EOF) && !ended:
			ended = true
			_ = sandbox.CloseSend() // tell notices the end
		case err != nil:
			return
		case !ended && sandbox.Send(message) != nil:
			ended = true
		}
	}
}

// Kind names the kind of a call; a label has only these values.
func Kind(what *federationv1.ReachCall) string {
	switch what.GetWhat().(type) {
	case *federationv1.ReachCall_Exec:
		return "exec"
	case *federationv1.ReachCall_Logs:
		return "logs"
	case *federationv1.ReachCall_Port:
		return "port"
	case *federationv1.ReachCall_Secrets:
		return "secrets"
	default:
		return "unknown"
	}
}
