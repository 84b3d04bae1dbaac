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
	// Send returns when the message was accepted. It does not retain the message.
	Send(message []byte) error
	// CloseSend marks the last message as sent.
	CloseSend() error
	// Close ends the conversation, and sends the reason to the other end where possible.
	Close(reason error)
	// Cut returns a channel that is closed when either side ends the conversation early.
	Cut() <-chan struct{}
}

// Caller is the caller's end of a conversation, with methods like those of a Tunnel. It disconnects after the last message, unless it has
// more to send.
type Caller interface {
	Recv() ([]byte, error)
	Send(message []byte) error
	CloseSend() error
	// Close is not called while a Send is running, except with nil.
	Close(reason error)
	// Hurry unblocks a Send that has been blocked for a long time.
	Hurry()
}

// Opener opens conversations.
type Opener interface {
	// Open connects to a sandbox. The context bounds the opening, and identifies the caller.
	Open(ctx context.Context, id string, what *federationv1.ReachCall) (Tunnel, error)
}

// Join copies between a caller and a sandbox until the conversation has ended, and closes both ends. It returns the error for which the
// sandbox's data was not received to its end. A caller that disconnects first is not an error.
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
	go func() { heard <- copyToCaller(caller, sandbox) }()
	go func() {
		defer close(gone)
		copyToSandbox(caller, sandbox)
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

// copyToCaller copies from the sandbox to the caller until the sandbox has sent its last message.
func copyToCaller(caller Caller, sandbox Tunnel) error {
	for {
		message, err := sandbox.Recv()
		switch {
		case errors.Is(err, io.EOF):
			_ = caller.CloseSend() // copyToSandbox detects whether the caller has disconnected
			return nil
		case err != nil:
			return err
		}
		if caller.Send(message) != nil {
			return errLeft
		}
	}
}

// copyToSandbox copies from the caller to the sandbox until the caller disconnects. A sandbox that accepts no more data may still send.
func copyToSandbox(caller Caller, sandbox Tunnel) {
	ended := false
	for {
		message, err := caller.Recv()
		switch {
		case errors.Is(err, io.EOF) && !ended:
			ended = true
			_ = sandbox.CloseSend() // copyToCaller detects the end
		case err != nil:
			return
		case !ended && sandbox.Send(message) != nil:
			ended = true
		}
	}
}

// Kind returns the kind of a call. Metric labels have only these values.
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
