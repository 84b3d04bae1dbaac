// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"connectrpc.com/connect"

	processv1 "navix.sh/atoll/api/envd/process"
)

const (
	keepaliveHeader  = "Keepalive-Ping-Interval" // seconds
	defaultKeepalive = 90 * time.Second
)

func (d *Daemon) list(context.Context, *connect.Request[processv1.ListRequest]) (*connect.Response[processv1.ListResponse], error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &processv1.ListResponse{}
	for _, p := range d.byPID {
		out.Processes = append(out.Processes, p.info)
	}
	return connect.NewResponse(out), nil
}

// find returns a process by its pid or tag.
func (d *Daemon) find(s *processv1.ProcessSelector) (*process, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch by := s.GetSelector().(type) {
	case *processv1.ProcessSelector_Pid:
		if p := d.byPID[by.Pid]; p != nil {
			return p, nil
		}
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", by.Pid))
	case *processv1.ProcessSelector_Tag:
		for _, p := range d.byPID {
			if p.info.Tag != nil && p.info.GetTag() == by.Tag {
				return p, nil
			}
		}
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with tag %q not found", by.Tag))
	default:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("process selects neither a pid nor a tag"))
	}
}

// start runs a process, which outlives the stream. The call's deadline becomes the process's timeout.
func (d *Daemon) start(ctx context.Context, q *connect.Request[processv1.StartRequest],
	s *connect.ServerStream[processv1.StartResponse]) error {
	a, err := d.accountOf("", q.Header())
	if err != nil {
		return err
	}
	var timeout time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline), time.Millisecond)
	}
	p, first, err := d.run(a, q.Msg, timeout)
	if err != nil {
		return err
	}
	return d.follow(ctx, p, first, q.Header(), func(e *processv1.ProcessEvent) error {
		return s.Send(&processv1.StartResponse{Event: e})
	})
}

func (d *Daemon) connect(ctx context.Context, q *connect.Request[processv1.ConnectRequest],
	s *connect.ServerStream[processv1.ConnectResponse],
) error {
	p, err := d.find(q.Msg.GetProcess())
	if err != nil {
		return err
	}
	return d.follow(ctx, p, p.output.read(), q.Header(), func(e *processv1.ProcessEvent) error {
		return s.Send(&processv1.ConnectResponse{Event: e})
	})
}

// follow sends a process's events until its end, and closes the reader.
func (d *Daemon) follow(ctx context.Context, p *process, reader *reader, header http.Header,
	send func(*processv1.ProcessEvent) error,
) error {
	defer reader.close()
	if err := send(&processv1.ProcessEvent{Event: &processv1.ProcessEvent_Start{
		Start: &processv1.ProcessEvent_StartEvent{Pid: p.info.GetPid()},
	}}); err != nil {
		return err
	}
	ticker := time.NewTicker(keepalive(header))
	defer ticker.Stop()
	for {
		event, last, wait := reader.take()
		if event != nil {
			if err := send(event); err != nil || last {
				return err
			}
			continue
		}
		select {
		case <-wait:
		case <-ticker.C:
			if err := send(&processv1.ProcessEvent{Event: &processv1.ProcessEvent_Keepalive{
				Keepalive: &processv1.ProcessEvent_KeepAlive{},
			}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-d.ctx.Done():
			return connect.NewError(connect.CodeUnavailable, errors.New("the sandbox ends"))
		}
	}
}

func keepalive(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(header.Get(keepaliveHeader))
	if err != nil || seconds < 1 || seconds > 3600 {
		return defaultKeepalive
	}
	return time.Duration(seconds) * time.Second
}

func (d *Daemon) update(_ context.Context, q *connect.Request[processv1.UpdateRequest]) (*connect.Response[processv1.UpdateResponse],
	error) {
	p, err := d.find(q.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if q.Msg.Pty != nil {
		if err := p.resize(q.Msg.GetPty()); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&processv1.UpdateResponse{}), nil
}

func (d *Daemon) sendInput(_ context.Context, q *connect.Request[processv1.SendInputRequest]) (
	*connect.Response[processv1.SendInputResponse], error,
) {
	p, err := d.find(q.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if err := p.write(q.Msg.GetInput()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&processv1.SendInputResponse{}), nil
}

func (d *Daemon) streamInput(_ context.Context, s *connect.ClientStream[processv1.StreamInputRequest]) (
	*connect.Response[processv1.StreamInputResponse], error,
) {
	var p *process
	for s.Receive() {
		var err error
		switch e := s.Msg().GetEvent().(type) {
		case *processv1.StreamInputRequest_Start:
			p, err = d.find(e.Start.GetProcess())
		case *processv1.StreamInputRequest_Data:
			if p == nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("data comes before start"))
			}
			err = p.write(e.Data.GetInput())
		}
		if err != nil {
			return nil, err
		}
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&processv1.StreamInputResponse{}), nil
}

func (d *Daemon) sendSignal(_ context.Context, q *connect.Request[processv1.SendSignalRequest]) (
	*connect.Response[processv1.SendSignalResponse], error,
) {
	p, err := d.find(q.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	s := syscall.Signal(q.Msg.GetSignal())
	if s != syscall.SIGTERM && s != syscall.SIGKILL {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("signal %d is not valid, want SIGTERM or SIGKILL", s))
	}
	if err := p.signal(s); err != nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process %d: %w", p.info.GetPid(), err))
	}
	return connect.NewResponse(&processv1.SendSignalResponse{}), nil
}

func (d *Daemon) closeStdin(_ context.Context, q *connect.Request[processv1.CloseStdinRequest]) (
	*connect.Response[processv1.CloseStdinResponse], error,
) {
	p, err := d.find(q.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if err := p.closeInput(); err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("closing the input: %w", err))
	}
	return connect.NewResponse(&processv1.CloseStdinResponse{}), nil
}
