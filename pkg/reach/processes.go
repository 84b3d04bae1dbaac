// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"navix.sh/atoll/api/envd"
	processv1 "navix.sh/atoll/api/envd/process"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/sandboxd"
	"navix.sh/atoll/pkg/serve"
)

const (
	maxArguments = 1024
	maxVariables = 256
	// maxOutput is the maximum size of stdout, and of stderr, in a response.
	maxOutput = 256 << 10
	// quiet is the number of seconds without output after which a stream sends a keepalive.
	quiet = "20"
	// maxTimeout is the longest timeout of a command: the header in which the daemon gets it has ten digits.
	maxTimeout = 9_999_999_999 * time.Millisecond
	// grace is how long a daemon may take to end a command after its timeout.
	grace = 5 * time.Second
	// killPause is the pause before a SIGKILL that was not delivered is sent again.
	killPause = 100 * time.Millisecond
)

// check reads a command, and returns its timeout; zero: none.
func check(c *sandboxv1.Command, q *query) (timeout time.Duration, err error) {
	if len(c.Command) == 0 || c.Command[0] == "" {
		q.fault("command", "", `the program and its arguments: ["ls", "-l"]`)
	}
	if len(c.Command) > maxArguments || len(c.EnvVars) > maxVariables {
		q.fault("command", fmt.Sprintf("%d arguments, %d envVars", len(c.Command), len(c.EnvVars)),
			fmt.Sprintf("at most %d arguments and %d envVars", maxArguments, maxVariables))
	}
	for name, value := range c.EnvVars {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			q.fault("envVars", name, "names without = and NUL, and values without NUL")
		}
	}
	for _, word := range c.Command {
		q.bounded("command", word, maxBody)
	}
	q.bounded("workdir", c.Workdir, maxPathBytes)
	if c.Timeout != "" {
		if timeout, err = time.ParseDuration(c.Timeout); err != nil || timeout <= 0 || timeout > maxTimeout {
			q.fault("timeout", c.Timeout, serve.ValidDuration+", at most "+maxTimeout.String())
		}
	}
	return timeout, q.known("user")
}

// run runs a command. It responds when the command has ended, or streams events as they arrive. The command continues if its caller leaves.
func (i *inside) run() error {
	var in sandboxv1.Command
	if err := i.read(&in); err != nil {
		return err
	}
	timeout, err := check(&in, &i.query)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(i.context)
	defer cancel(nil)
	header := http.Header{"Keepalive-Ping-Interval": {quiet}}
	if timeout > 0 {
		header.Set("Connect-Timeout-Ms", strconv.FormatInt(max(timeout.Milliseconds(), 1), 10))
		defer time.AfterFunc(timeout+grace, func() { cancel(context.DeadlineExceeded) }).Stop()
	}
	start := &processv1.StartRequest{
		Process: &processv1.ProcessConfig{Cmd: in.Command[0], Args: in.Command[1:], Envs: in.EnvVars}, Stdin: new(in.Stdin != ""),
	}
	if in.Workdir != "" {
		start.Process.Cwd = &in.Workdir
	}
	stream, err := sandboxd.Stream[processv1.StartResponse](ctx, i.Client, envd.ProcessStart, i.now, start, header)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	run := &running{ctx: ctx, stream: stream, pid: stream.Msg().GetEvent().GetStart().GetPid(), began: i.now, timeout: timeout}
	if in.Stdin != "" {
		fed := make(chan struct{})
		living, died := context.WithCancel(context.WithoutCancel(ctx))
		go func() {
			defer close(fed)
			defer died()
			if err := i.feed(ctx, living, run.pid, in.Stdin); err != nil {
				cause := problem.FromError(i.explain(err))
				cancel(problem.New(cause.Reason, "the command's input was not delivered, and the command was ended: %s", cause.Message))
				i.kill(run.pid)
			}
		}()
		defer func() {
			over := run.end != nil || timeout > 0 && errors.Is(context.Cause(ctx), context.DeadlineExceeded)
			cancel(nil)
			if over {
				died() // because a daemon that hangs would hold up the response
			}
			<-fed
		}()
	}
	if wantsEvents(i.request) {
		i.stream(run)
		return nil
	}
	result, err := run.collect()
	if err != nil {
		return err
	}
	return i.reply(result)
}

func selectorOf(pid uint32) *processv1.ProcessSelector {
	return &processv1.ProcessSelector{Selector: &processv1.ProcessSelector_Pid{Pid: pid}}
}

// feed sends a process its input, and returns an error if the input was not delivered. It is not an error if the process has ended or does
// not read its input. feed closes the input even if the caller has left, because the process continues and may wait for the end of its
// input. So the context of the close, living, ends only with the process.
func (i *inside) feed(ctx, living context.Context, pid uint32, text string) error {
	_, err := callDaemon[processv1.SendInputResponse](ctx, i, envd.ProcessSendInput, &processv1.SendInputRequest{
		Process: selectorOf(pid), Input: &processv1.ProcessInput{Input: &processv1.ProcessInput_Stdin{Stdin: []byte(text)}},
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // the command has ended, or continues without its caller
	case err != nil:
		return undelivered(err)
	}
	late, cancel := context.WithTimeout(living, openTimeout)
	defer cancel()
	_, err = callDaemon[processv1.CloseStdinResponse](late, i, envd.ProcessCloseStdin, &processv1.CloseStdinRequest{Process: selectorOf(pid)})
	if living.Err() != nil {
		return nil
	}
	return undelivered(err)
}

// undelivered returns the error of a call to a process, or nil if the daemon reports that the process has ended or does not read.
func undelivered(err error) error {
	if code := connect.CodeOf(err); err == nil || code == connect.CodeNotFound || code == connect.CodeFailedPrecondition {
		return nil
	}
	return err
}

// kill kills a process, even if the caller has left. It retries while there are too many tunnels, because the command's own tunnel is being
// closed.
func (i *inside) kill(pid uint32) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(i.context), grace)
	defer cancel()
	for {
		err := i.sendSignal(ctx, pid, processv1.Signal_SIGNAL_SIGKILL)
		if known := (*problem.Error)(nil); !errors.As(err, &known) || known.Reason != problem.RateLimited {
			return
		}
		select {
		case <-time.After(killPause):
		case <-ctx.Done():
			return
		}
	}
}

func (i *inside) sendSignal(ctx context.Context, pid uint32, number processv1.Signal) error {
	_, err := callDaemon[processv1.SendSignalResponse](ctx, i, envd.ProcessSendSignal,
		&processv1.SendSignalRequest{Process: selectorOf(pid), Signal: number})
	return err
}

// running is a command that runs.
type running struct {
	ctx     context.Context
	stream  *connect.ServerStreamForClient[processv1.StartResponse]
	pid     uint32
	began   time.Time
	timeout time.Duration                    // zero: none
	end     *processv1.ProcessEvent_EndEvent // nil: it has not ended, as far as the daemon says
}

// exit returns how a process ended, or the error of its stream if that ended first.
func (r *running) exit() (sandboxv1.CommandExit, error) {
	err := r.stream.Err()
	var ended *problem.Error // the cause of the context's cancellation
	switch {
	case r.end != nil && r.end.GetExited():
		return sandboxv1.CommandExit{ExitCode: r.end.GetExitCode()}, nil
	case r.end != nil:
		return sandboxv1.CommandExit{ExitCode: -1, Status: r.end.GetStatus(), TimedOut: r.timeout > 0 && time.Since(r.began) >= r.timeout}, nil
	case errors.As(context.Cause(r.ctx), &ended):
		return sandboxv1.CommandExit{}, ended
	case errors.Is(context.Cause(r.ctx), context.DeadlineExceeded) || connect.CodeOf(err) == connect.CodeDeadlineExceeded:
		return sandboxv1.CommandExit{ExitCode: -1, TimedOut: true}, nil
	case err == nil:
		return sandboxv1.CommandExit{}, problem.New(problem.Unavailable, "the sandbox did not tell how the command ended")
	default:
		return sandboxv1.CommandExit{}, err
	}
}

// collect reads the output of a process until it ends.
func (r *running) collect() (*sandboxv1.CommandResult, error) {
	var out, errOut bytes.Buffer
	result := &sandboxv1.CommandResult{PID: r.pid}
	keep := func(to *bytes.Buffer, data []byte, truncated *bool) {
		room := maxOutput - to.Len()
		*truncated = *truncated || len(data) > room
		to.Write(data[:min(len(data), room)])
	}
	for r.end == nil && r.stream.Receive() {
		event := r.stream.Msg().GetEvent()
		keep(&out, event.GetData().GetStdout(), &result.StdoutTruncated)
		keep(&errOut, event.GetData().GetStderr(), &result.StderrTruncated)
		r.end = event.GetEnd()
	}
	var err error
	if result.CommandExit, err = r.exit(); err != nil {
		return nil, err
	}
	result.Stdout, result.Stderr = strings.ToValidUTF8(out.String(), "\uFFFD"), strings.ToValidUTF8(errOut.String(), "\uFFFD")
	return result, nil
}

func wantsEvents(r *http.Request) bool {
	for _, one := range strings.Split(r.Header.Get("Accept"), ",") {
		if kind, _, err := mime.ParseMediaType(strings.TrimSpace(one)); err == nil && kind == "text/event-stream" {
			return true
		}
	}
	return false
}

// stream sends the output of a process as server-sent events. The output is in base64, because it may be any bytes.
func (i *inside) stream(run *running) {
	header := i.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // proxies must not hold events back
	i.w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(i.w)
	send := func(kind string, data any) bool {
		text, err := json.Marshal(data)
		if err == nil {
			_, err = fmt.Fprintf(i.w, "event: %s\ndata: %s\n\n", kind, text)
		}
		return err == nil && control.Flush() == nil
	}
	going := send(sandboxv1.CommandStarted, sandboxv1.CommandStart{PID: run.pid})
	for going && run.end == nil && run.stream.Receive() {
		event := run.stream.Msg().GetEvent()
		switch {
		case event.GetKeepalive() != nil:
			_, err := fmt.Fprint(i.w, ": the command runs\n\n")
			going = err == nil && control.Flush() == nil
		case len(event.GetData().GetStdout()) > 0:
			going = send(sandboxv1.CommandStdout, sandboxv1.CommandOutput{Data: event.GetData().GetStdout()})
		case len(event.GetData().GetStderr()) > 0:
			going = send(sandboxv1.CommandStderr, sandboxv1.CommandOutput{Data: event.GetData().GetStderr()})
		}
		run.end = event.GetEnd()
	}
	if !going {
		return
	}
	exit, err := run.exit()
	if err == nil {
		send(sandboxv1.CommandExited, exit)
		return
	}
	if text, err := problem.FromError(i.explain(err)).Document(); err == nil {
		send(sandboxv1.CommandFailed, json.RawMessage(text))
	}
}

func (i *inside) processes() error {
	if err := i.query.known("user"); err != nil {
		return err
	}
	out, err := callDaemon[processv1.ListResponse](i.context, i, envd.ProcessList, &processv1.ListRequest{})
	if err != nil {
		return err
	}
	list := sandboxv1.ProcessList{Processes: make([]sandboxv1.Process, len(out.GetProcesses()))}
	for n, p := range out.GetProcesses() {
		list.Processes[n] = sandboxv1.Process{
			PID: p.GetPid(), Command: append([]string{p.GetConfig().GetCmd()}, p.GetConfig().GetArgs()...), Workdir: p.GetConfig().GetCwd(),
		}
	}
	return i.reply(list)
}

func (i *inside) signal() error {
	var in sandboxv1.Signal
	if err := i.read(&in); err != nil {
		return err
	}
	number := processv1.Signal(processv1.Signal_value["SIGNAL_"+in.Signal])
	if number == processv1.Signal_SIGNAL_UNSPECIFIED {
		i.query.fault("signal", in.Signal, "SIGTERM or SIGKILL")
	}
	pid, err := strconv.ParseUint(i.target.pid, 10, 32)
	if err != nil {
		i.query.fault("pid", i.target.pid, "the number of a process")
	}
	if err := i.query.known("user"); err != nil {
		return err
	}
	if err := i.sendSignal(i.context, uint32(pid), number); err != nil {
		return err
	}
	i.w.WriteHeader(http.StatusNoContent)
	return nil
}
