// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/creack/pty"

	processv1 "navix.sh/atoll/api/envd/process"
)

const (
	maxProcesses = 512
	pieceBytes   = 32 << 10
	// drainTimeout is how long to wait for output after the end of a process whose children keep its pipes open.
	drainTimeout = 300 * time.Millisecond
	// undrained bounds the output of a stream that is neither kept nor dropped yet: a full pipe, and a piece that is being read.
	undrained = 64<<10 + pieceBytes
)

var errTooMany = connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%d processes run already, which is the most", maxProcesses))

// process is a running process.
type process struct {
	info   *processv1.ProcessInfo
	output *output
	cmd    *exec.Cmd
	ended  atomic.Bool // then its pid may belong to another process

	mu    sync.Mutex
	stdin io.WriteCloser // nil if there is none or it is closed
	tty   *os.File       // nil if there is none or it is closed
}

// run starts a process. It ends with the daemon, or after the timeout unless that is zero. run also returns the first reader, which the
// caller closes. The reader exists before any output, because without readers the oldest output is dropped.
func (d *Daemon) run(a account, q *processv1.StartRequest, timeout time.Duration) (*process, *reader, error) {
	cmd, err := d.command(a, q.GetProcess())
	if err != nil {
		return nil, nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return nil, nil, connect.NewError(connect.CodeUnavailable, errors.New("the sandbox ends"))
	}
	if len(d.byPID) >= maxProcesses {
		return nil, nil, errTooMany
	}
	p := &process{output: newOutput(), cmd: cmd}
	var sources map[stream]*os.File
	if q.Pty != nil {
		sources, err = p.startOnTerminal(q.GetPty())
	} else {
		sources, err = p.startOnPipes(q.Stdin == nil || q.GetStdin())
	}
	if err != nil {
		return nil, nil, connect.NewError(startCode(err), fmt.Errorf("starting %q: %w", q.GetProcess().GetCmd(), err))
	}
	first := p.output.read()
	p.info = &processv1.ProcessInfo{Config: q.GetProcess(), Pid: uint32(cmd.Process.Pid), Tag: q.Tag} //nolint:gosec // a PID is positive
	d.byPID[p.info.GetPid()] = p
	d.work.Add(1)
	go func() {
		defer d.work.Done()
		d.attend(p, sources, timeout)
	}()
	return p, first, nil
}

func startCode(err error) connect.Code {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return connect.CodeNotFound
	case errors.Is(err, os.ErrPermission):
		return connect.CodePermissionDenied
	default:
		return connect.CodeInternal
	}
}

// command prepares a command. It looks the program up in the command's own environment.
func (d *Daemon) command(a account, c *processv1.ProcessConfig) (*exec.Cmd, error) {
	if c.GetCmd() == "" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("process.cmd is empty"))
	}
	if err := checkEnv("process.envs", c.GetEnvs()); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	dir, err := d.path(a, c.GetCwd())
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		if c.GetCwd() != "" {
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("cwd %q is not a folder", c.GetCwd()))
		}
		dir = "/" // the account's home does not exist
	}
	program, args := shellOf(c.GetCmd(), c.GetArgs())
	cmd := &exec.Cmd{Path: program, Args: append([]string{program}, args...), Dir: dir, Env: d.environment(a, c.GetEnvs())}
	if path.Base(program) == program {
		found, err := lookPath(program, cmd.Env)
		if err != nil {
			return nil, connect.NewError(connect.CodeNotFound, err)
		}
		cmd.Path = found
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential()}
	return cmd, nil
}

// shellOf removes -l from a login shell, which keeps the image's PATH, and replaces bash by sh in images without bash.
func shellOf(program string, args []string) (string, []string) {
	if program != "/bin/bash" {
		return program, args
	}
	if len(args) >= 2 && args[0] == "-l" && args[1] == "-c" {
		args = args[1:]
	}
	for _, shell := range []string{program, "/usr/bin/bash", "/bin/sh"} {
		if _, err := os.Stat(shell); err == nil {
			return shell, args
		}
	}
	return program, args
}

func lookPath(program string, env []string) (string, error) {
	for _, line := range env {
		folders, ok := strings.CutPrefix(line, "PATH=")
		if !ok {
			continue
		}
		for _, folder := range filepath.SplitList(folders) {
			file := path.Join(folder, program)
			if info, err := os.Stat(file); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("program %q is not in PATH", program)
}

func (p *process) startOnTerminal(size *processv1.PTY) (map[stream]*os.File, error) {
	tty, err := pty.StartWithSize(p.cmd, windowOf(size))
	if err != nil {
		return nil, err
	}
	p.tty = tty
	return map[stream]*os.File{terminal: tty}, nil
}

func windowOf(size *processv1.PTY) *pty.Winsize {
	cols, rows := size.GetSize().GetCols(), size.GetSize().GetRows()
	if cols == 0 || rows == 0 {
		cols, rows = 80, 24
	}
	return &pty.Winsize{Cols: uint16(min(cols, 1<<16-1)), Rows: uint16(min(rows, 1<<16-1))}
}

// startOnPipes starts a process on pipes that it creates itself, because Cmd.Wait would wait for children that keep its own pipes open.
func (p *process) startOnPipes(input bool) (sources map[stream]*os.File, err error) {
	p.cmd.SysProcAttr.Setpgid = true
	var theirs, ours []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
		if err != nil {
			for _, f := range ours {
				_ = f.Close()
			}
		}
	}()
	sources = map[stream]*os.File{}
	for _, s := range []stream{stdout, stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		sources[s], ours, theirs = r, append(ours, r), append(theirs, w)
		if s == stdout {
			p.cmd.Stdout = w
		} else {
			p.cmd.Stderr = w
		}
	}
	if input {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		p.cmd.Stdin, p.stdin, ours, theirs = r, w, append(ours, w), append(theirs, r)
	}
	return sources, p.cmd.Start()
}

// attend reads the output of a process until it ends, and then records its end.
func (d *Daemon) attend(p *process, sources map[stream]*os.File, timeout time.Duration) {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	if timeout > 0 {
		ctx, cancel = context.WithTimeout(d.ctx, timeout)
		defer cancel()
	}
	defer context.AfterFunc(ctx, func() { _ = p.signal(syscall.SIGKILL) })()
	var reading sync.WaitGroup
	for from, file := range sources {
		reading.Add(1)
		d.work.Add(1)
		stop := context.AfterFunc(d.ctx, func() { _ = file.Close() })
		go func() {
			defer d.work.Done()
			defer stop()
			defer file.Close()
			defer reading.Done()
			p.copy(d.ctx, from, file)
		}()
	}
	read := make(chan struct{})
	go func() { reading.Wait(); close(read) }()
	err := p.cmd.Wait()
	// From here on the pid may belong to another process.
	p.ended.Store(true)
	d.mu.Lock()
	delete(d.byPID, p.info.GetPid())
	d.mu.Unlock()
	_ = p.closeInput()
	p.output.drain(read, len(sources)*undrained)
	p.output.close(endOf(p.cmd.ProcessState, err))
	if p.tty == nil {
		return
	}
	p.mu.Lock()
	tty := p.tty
	p.tty = nil
	p.mu.Unlock()
	_ = tty.Close()
}

// copy reads output until its end. It drops the output of children after the process's end, so that their writes do not block.
func (p *process) copy(ctx context.Context, from stream, file *os.File) {
	buffer := make([]byte, pieceBytes)
	for {
		n, err := file.Read(buffer)
		if n > 0 && !p.over() {
			p.output.write(ctx, from, buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

func (p *process) over() bool {
	p.output.mu.Lock()
	defer p.output.mu.Unlock()
	return p.output.end != nil
}

func endOf(state *os.ProcessState, err error) *processv1.ProcessEvent {
	end := &processv1.ProcessEvent_EndEvent{ExitCode: -1, Status: "unknown"}
	if state != nil {
		end.ExitCode, end.Exited, end.Status = int32(state.ExitCode()), state.Exited(), state.String() //nolint:gosec // an exit code
	}
	if err != nil {
		end.Error = new(err.Error())
	}
	return &processv1.ProcessEvent{Event: &processv1.ProcessEvent_End{End: end}}
}

// signal signals the process's group.
func (p *process) signal(s syscall.Signal) error {
	if p.ended.Load() {
		return os.ErrProcessDone
	}
	return syscall.Kill(-p.cmd.Process.Pid, s)
}

func (p *process) write(q *processv1.ProcessInput) error {
	p.mu.Lock()
	in, data := p.stdin, q.GetStdin()
	if _, ok := q.GetInput().(*processv1.ProcessInput_Pty); ok {
		in, data = nil, q.GetPty()
		if p.tty != nil {
			in = p.tty
		}
	}
	p.mu.Unlock()
	if in == nil {
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has no such input, or it is closed"))
	}
	if _, err := in.Write(data); err != nil {
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("writing to the process: %w", err))
	}
	return nil
}

func (p *process) closeInput() error {
	p.mu.Lock()
	in := p.stdin
	p.stdin = nil
	p.mu.Unlock()
	if in == nil {
		return nil
	}
	return in.Close()
}

func (p *process) resize(size *processv1.PTY) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tty == nil {
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has no terminal"))
	}
	return pty.Setsize(p.tty, windowOf(size))
}
