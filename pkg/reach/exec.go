// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"encoding/json"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
)

// The protocol of exec, and its channels.
const (
	ExecProtocol   = "v5.channel.k8s.io"
	ExecProtocolV4 = "v4.channel.k8s.io" // without ChannelClose

	ChannelStdin  = 0
	ChannelStdout = 1
	ChannelStderr = 2
	ChannelStatus = 3 // the exit, a metav1.Status
	ChannelResize = 4 // {"Width":80,"Height":24}
	ChannelClose  = 255
)

func execCall(r *http.Request) (*federationv1.ReachCall, error) {
	q := query{values: r.URL.Query()}
	exec := &federationv1.ExecReach{
		Command: q.values["command"], Container: q.values.Get("container"),
		Stdin: q.flag("stdin"), Stdout: q.flag("stdout"), Stderr: q.flag("stderr"), Tty: q.flag("tty"),
	}
	if len(exec.GetCommand()) == 0 {
		q.fault("command", "", "the command, once for each argument: command=ls&command=-l")
	}
	if !q.values.Has("stdout") && !q.values.Has("stderr") {
		exec.Stdout, exec.Stderr = true, true
	}
	if exec.GetTty() {
		exec.Stderr = false // a terminal has one output
	}
	if err := q.known("command container stdin stdout stderr tty"); err != nil {
		return nil, err
	}
	return &federationv1.ReachCall{What: &federationv1.ReachCall_Exec{Exec: exec}}, nil
}

func (h *Handler) exec(w http.ResponseWriter, r *http.Request, t target) error {
	if err := wants(r, ExecProtocol, ExecProtocolV4); err != nil {
		return err
	}
	call, err := execCall(r)
	if err != nil {
		return err
	}
	tunnel, err := h.open(r.Context(), t.id, call)
	if err != nil {
		return err
	}
	socket, err := upgrade(w, r, ExecProtocol, ExecProtocolV4)
	if err != nil {
		tunnel.Close(err)
		return nil // the upgrader has answered
	}
	if err := Join(&execCaller{socket: socket}, tunnel); err != nil {
		h.log.V(1).Info("An exec broke off", "sandbox", t.id, "reason", err.Error())
	}
	return nil
}

// execCaller splits a message of a channel into pieces, each of which is a message of the same channel.
type execCaller struct {
	*socket
	channel byte
}

func (e *execCaller) Recv() ([]byte, error) {
	for {
		piece, begins, err := e.next(1)
		if err != nil {
			return nil, err
		}
		if begins {
			if len(piece) == 0 {
				continue
			}
			e.channel = piece[0]
			copy(e.buffer[1:], piece[1:])
			piece = piece[:len(piece)-1]
		}
		if e.channel != ChannelStdin && e.channel != ChannelResize && e.channel != ChannelClose {
			continue
		}
		e.buffer[0] = e.channel
		return e.buffer[:1+len(piece)], nil
	}
}

func (e *execCaller) CloseSend() error { return e.part(nil) }

// Close sends the reason on the status channel, because clients take a missing status for success.
func (e *execCaller) Close(reason error) {
	if reason != nil {
		_ = e.conn.SetWriteDeadline(time.Now().Add(controlTimeout))
		_ = e.Send(failure(reason))
	}
	e.socket.Close(reason)
}

func failure(reason error) []byte {
	p := problem.FromError(reason)
	status, err := json.Marshal(metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: p.Error(), Code: int32(p.Reason.HTTPStatus()),
	})
	if err != nil {
		status = []byte(`{"status":"Failure","reason":"InternalError"}`)
	}
	return append([]byte{ChannelStatus}, status...)
}
