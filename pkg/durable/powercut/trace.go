// SPDX-License-Identifier: Apache-2.0

//go:build linux

package powercut

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is a system call of the traced process.
type call struct {
	pid, tid int
	number   uint64
	args     [6]uint64
	result   int64 // once it has returned

	paths   []string  // at the entry
	pending []*change // of a sync: the changes that it makes durable
}

var errKill = errors.New("the process is to be killed")

// observer gets every call at its entry and at its exit, while the thread is stopped. errKill ends the process.
type observer interface {
	entered(*call) error
	returned(*call) error
}

const syscallStop = unix.SIGTRAP | 0x80

// trace runs a process to its end. It waits only for this thread's children, and takes a thread's first stop as its start,
// whether its creation was reported before or not.
func trace(command []string, env []string, files []*os.File, see observer) (status unix.WaitStatus, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, err := os.StartProcess(command[0], command, &os.ProcAttr{Env: env, Files: files, Sys: &syscall.SysProcAttr{Ptrace: true}})
	if err != nil {
		return 0, fmt.Errorf("starting the traced process: %w", err)
	}
	defer func() { err = errors.Join(err, p.Release()) }()
	if _, err = unix.Wait4(p.Pid, &status, unix.WALL, nil); err != nil || !status.Stopped() {
		return status, fmt.Errorf("tracing needs ptrace: the process came to %#x (%w)", status, err)
	}
	if err := unix.PtraceSetOptions(p.Pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL); err != nil {
		return status, fmt.Errorf("tracing: %w", err)
	}
	if err := unix.PtraceSyscall(p.Pid, 0); err != nil {
		return status, fmt.Errorf("tracing: %w", err)
	}
	t := &tracer{pid: p.Pid, see: see, threads: map[int]*call{p.Pid: nil}}
	for {
		var s unix.WaitStatus
		tid, err := unix.Wait4(-1, &s, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return status, errors.Join(t.failed, fmt.Errorf("waiting for the traced process: %w", err))
		case s.Exited(), s.Signaled():
			if tid == p.Pid {
				return s, t.failed
			}
			delete(t.threads, tid)
		default:
			t.stopped(tid, s)
		}
	}
}

type tracer struct {
	pid     int
	see     observer
	threads map[int]*call // the current call of a thread
	failed  error
}

func (t *tracer) stopped(tid int, s unix.WaitStatus) {
	signal := s.StopSignal()
	_, known := t.threads[tid]
	switch {
	case signal == syscallStop:
		signal = 0
		if err := t.syscall(tid); err != nil && !errors.Is(err, unix.ESRCH) {
			if !errors.Is(err, errKill) && t.failed == nil {
				t.failed = err
			}
			_ = unix.Kill(t.pid, unix.SIGKILL)
		}
	case !known:
		t.threads[tid] = nil
		signal = 0
	case signal == unix.SIGTRAP:
		signal = 0 // a thread began
	}
	_ = unix.PtraceSyscall(tid, int(signal)) // fails for a thread that was killed meanwhile
}

// syscallInfo is struct ptrace_syscall_info of Linux.
type syscallInfo struct {
	op       uint8
	_        [3]uint8
	_        uint32
	_, _     uint64
	number   uint64 // at an exit: the result
	args     [6]uint64
	reserved [2]uint64
}

func (t *tracer) syscall(tid int) error {
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info),
		uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("reading a system call: %w", errno)
	}
	if info.op == unix.PTRACE_SYSCALL_INFO_ENTRY {
		c := &call{pid: t.pid, tid: tid, number: info.number, args: info.args}
		t.threads[tid] = c
		return t.see.entered(c)
	}
	c := t.threads[tid]
	t.threads[tid] = nil
	if c == nil {
		return nil
	}
	c.result = int64(info.number)
	return t.see.returned(c)
}

// path reads a string of the process' memory.
func (c *call) path(address uint64) (string, error) {
	page := uint64(os.Getpagesize())
	var text []byte
	for len(text) < unix.PathMax {
		chunk := make([]byte, page-address%page) // not beyond a page, which may be the last
		n, err := unix.ProcessVMReadv(c.pid, []unix.Iovec{{Base: &chunk[0], Len: uint64(len(chunk))}},
			[]unix.RemoteIovec{{Base: uintptr(address), Len: len(chunk)}}, 0)
		if err != nil {
			return "", fmt.Errorf("reading a path: %w", err)
		}
		for _, b := range chunk[:n] {
			if b == 0 {
				return string(text), nil
			}
			text = append(text, b)
		}
		address += uint64(n)
	}
	return "", errors.New("reading a path: it does not end")
}
