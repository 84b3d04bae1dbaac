// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// These belong to this process alone.
var (
	started = time.Now()
	boot    = rand.Text()
)

// attribute is one that the file's owner may set.
const attribute = "user.tenant"

var errNothing = errors.New("there is nothing")

type process struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

func handler() http.Handler {
	mux := http.NewServeMux()
	for path, f := range map[string]func(url.Values) (any, error){
		"/whoami": whoami, "/write": write, "/fill": fill, "/read": read, "/xattr": xattr,
		"/listen": listen, "/dial": dial, "/spawn": spawn, "/ps": ps, "/ipc": ipc, "/oom": oom, "/exit": exit,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { answer(w, r, f) })
	}
	return mux
}

// answer sends a text unchanged and anything else as JSON.
func answer(w http.ResponseWriter, r *http.Request, f func(url.Values) (any, error)) {
	out, err := f(r.URL.Query())
	switch {
	case errors.Is(err, errNothing), errors.Is(err, fs.ErrNotExist):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		if text, ok := out.(string); ok {
			_, err = w.Write([]byte(text))
		} else {
			w.Header().Set("Content-Type", "application/json")
			err = json.NewEncoder(w).Encode(out)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "tenant: answering:", err)
		}
	}
}

func whoami(url.Values) (any, error) {
	name, err := os.Hostname()
	return map[string]any{
		"tag": tag, "hostname": name, "pid": os.Getpid(), "uid": os.Getuid(), "started": started, "boot": boot,
	}, err
}

func write(q url.Values) (any, error) {
	if err := os.WriteFile(q.Get("path"), []byte(q.Get("data")), 0o666); err != nil {
		return nil, err
	}
	return "written", nil
}

func fill(q url.Values) (any, error) {
	n, err := strconv.Atoi(q.Get("mebibytes"))
	if err != nil {
		return nil, fmt.Errorf("mebibytes: %w", err)
	}
	return "filled", os.WriteFile(q.Get("path"), make([]byte, n<<20), 0o666)
}

func read(q url.Values) (any, error) {
	data, err := os.ReadFile(q.Get("path"))
	return string(data), err
}

func xattr(q url.Values) (any, error) {
	if data := q.Get("data"); data != "" {
		return "written", unix.Setxattr(q.Get("path"), attribute, []byte(data), 0)
	}
	value := make([]byte, 256)
	n, err := unix.Getxattr(q.Get("path"), attribute, value)
	if errors.Is(err, unix.ENODATA) {
		return nil, errNothing
	}
	if err != nil {
		return nil, err
	}
	return string(value[:n]), nil
}

func listen(q url.Values) (any, error) {
	socket, err := net.Listen("tcp", ":"+q.Get("port"))
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler(), ReadHeaderTimeout: headerTimeout}
	go func() { fmt.Fprintln(os.Stderr, "tenant: serving:", server.Serve(socket)) }()
	return "listening", nil
}

// dial connects to an address.
func dial(q url.Values) (any, error) {
	conn, err := net.DialTimeout("tcp", q.Get("to"), 3*time.Second)
	if err != nil {
		return nil, err
	}
	return conn.RemoteAddr().String(), conn.Close()
}

func spawn(url.Values) (any, error) {
	cmd := exec.Command("/proc/self/exe", "linger")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return strconv.Itoa(cmd.Process.Pid), cmd.Process.Release()
}

func ps(url.Values) (any, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	processes := []process{}
	for _, path := range paths {
		command, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended since
		}
		if err != nil {
			return nil, err
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		processes = append(processes, process{PID: pid,
			Command: string(bytes.ReplaceAll(bytes.TrimRight(command, "\x00"), []byte{0}, []byte{' '}))})
	}
	return processes, nil
}

// oom responds before it begins; because afterwards the process is gone.
func oom(url.Values) (any, error) { //nolint:unparam // the signature is that of every handler
	time.AfterFunc(100*time.Millisecond, func() {
		for held := [][]byte{}; ; {
			block := make([]byte, 16<<20)
			for i := 0; i < len(block); i += os.Getpagesize() {
				block[i] = 1
			}
			held = append(held, block)
		}
	})
	return "taking memory", nil
}

func exit(q url.Values) (any, error) {
	code, err := strconv.Atoi(q.Get("code"))
	if err != nil {
		return nil, err
	}
	time.AfterFunc(100*time.Millisecond, func() { os.Exit(code) })
	return "ending", nil
}
