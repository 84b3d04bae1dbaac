// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"navix.sh/atoll/api/envd"
)

const (
	// MaxHeaderBytes bounds the header of a request.
	MaxHeaderBytes = 64 << 10
	maxMessage     = 4 << 20 // of a Connect call
	maxInit        = 1 << 20
	maxToken       = 1 << 10
	maxEnv         = 1 << 10 // variables
)

// TokenHeader carries the sandbox's access token.
const TokenHeader = "X-Access-Token"

// Options configure a Daemon.
type Options struct {
	Version string
}

// Daemon is the http.Handler that serves a sandbox.
type Daemon struct {
	mux     *http.ServeMux
	version string
	ctx     context.Context // of all processes and streams
	end     context.CancelFunc
	work    sync.WaitGroup

	mu       sync.Mutex
	token    string
	env      map[string]string
	user     string // the default user
	workdir  string
	updated  time.Time // timestamp of the last /init that had one
	byPID    map[uint32]*process
	watchers map[string]*watcher
}

// New returns a Daemon without a token.
func New(o Options) *Daemon {
	d := &Daemon{
		mux: http.NewServeMux(), version: o.Version, env: map[string]string{}, byPID: map[uint32]*process{}, watchers: map[string]*watcher{},
	}
	d.ctx, d.end = context.WithCancel(context.Background())
	d.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	d.mux.HandleFunc("GET /metrics", d.metrics)
	d.mux.HandleFunc("GET /envs", d.envs)
	d.mux.HandleFunc("POST /init", d.init)
	d.mux.HandleFunc("GET /files", d.download)
	d.mux.HandleFunc("POST /files", d.upload)
	d.mux.HandleFunc("PUT /files", d.upload)
	d.mux.HandleFunc("DELETE /files", d.remove)
	d.mux.HandleFunc("GET /archive", d.pack)
	d.mux.HandleFunc("PUT /archive", d.unpack)
	limit := connect.WithReadMaxBytes(maxMessage)
	unary(d.mux, envd.ProcessList, d.list, limit)
	unary(d.mux, envd.ProcessUpdate, d.update, limit)
	unary(d.mux, envd.ProcessSendInput, d.sendInput, limit)
	unary(d.mux, envd.ProcessSendSignal, d.sendSignal, limit)
	unary(d.mux, envd.ProcessCloseStdin, d.closeStdin, limit)
	d.mux.Handle(envd.ProcessStart, connect.NewServerStreamHandler(envd.ProcessStart, d.start, limit))
	d.mux.Handle(envd.ProcessConnect, connect.NewServerStreamHandler(envd.ProcessConnect, d.connect, limit))
	d.mux.Handle(envd.ProcessStreamInput, connect.NewClientStreamHandler(envd.ProcessStreamInput, d.streamInput, limit))
	unary(d.mux, envd.FilesystemStat, d.stat, limit)
	unary(d.mux, envd.FilesystemMakeDir, d.makeDir, limit)
	unary(d.mux, envd.FilesystemMove, d.move, limit)
	unary(d.mux, envd.FilesystemListDir, d.listDir, limit)
	unary(d.mux, envd.FilesystemRemove, d.removeEntry, limit)
	unary(d.mux, envd.FilesystemCreateWatcher, d.createWatcher, limit)
	unary(d.mux, envd.FilesystemGetWatcherEvents, d.watcherEvents, limit)
	unary(d.mux, envd.FilesystemRemoveWatcher, d.removeWatcher, limit)
	d.mux.Handle(envd.FilesystemWatchDir, connect.NewServerStreamHandler(envd.FilesystemWatchDir, d.watchDir, limit))
	return d
}

func unary[Q, R any](mux *http.ServeMux, path string, f func(context.Context, *connect.Request[Q]) (*connect.Response[R], error),
	options ...connect.HandlerOption,
) {
	mux.Handle(path, connect.NewUnaryHandler(path, f, options...))
}

// Close ends all processes and streams.
func (d *Daemon) Close() {
	d.end()
	d.mu.Lock()
	for id, w := range d.watchers {
		w.close()
		delete(d.watchers, id)
	}
	d.mu.Unlock()
	d.work.Wait()
}

// ServeHTTP implements http.Handler.
func (d *Daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/health" && !d.permits(r) {
		refuse(w, http.StatusUnauthorized, fmt.Errorf("the header %s does not have this sandbox's access token", TokenHeader))
		return
	}
	d.mux.ServeHTTP(w, r)
}

// permits reports whether a request has the token. Before /init there is none.
func (d *Daemon) permits(r *http.Request) bool {
	d.mu.Lock()
	token := d.token
	d.mu.Unlock()
	if token == "" {
		return r.URL.Path == "/init"
	}
	return subtle.ConstantTimeCompare([]byte(r.Header.Get(TokenHeader)), []byte(token)) == 1 || d.signed(r, token)
}

type initRequest struct {
	EnvVars        map[string]string `json:"envVars"`
	AccessToken    string            `json:"accessToken"`
	DefaultUser    string            `json:"defaultUser"`
	DefaultWorkdir string            `json:"defaultWorkdir"`
	Timestamp      time.Time         `json:"timestamp"`
}

// init sets the access token, the environment, and defaults. A call with an earlier timestamp than the last one has no effect.
func (d *Daemon) init(w http.ResponseWriter, r *http.Request) {
	var request initRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxInit)).Decode(&request); err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("reading the request: %w", err))
		return
	}
	if err := request.check(); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.token == "" && request.AccessToken == "" {
		refuse(w, http.StatusBadRequest, errors.New("accessToken is empty; the first /init sets it"))
		return
	}
	if d.token != "" && request.AccessToken != "" && request.AccessToken != d.token {
		refuse(w, http.StatusConflict, errors.New("accessToken is not that of this sandbox"))
		return
	}
	if !request.Timestamp.IsZero() && request.Timestamp.Before(d.updated) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	d.updated = request.Timestamp
	if d.token == "" {
		d.token = request.AccessToken
	}
	maps.Copy(d.env, request.EnvVars)
	if request.DefaultUser != "" {
		d.user = request.DefaultUser
	}
	if request.DefaultWorkdir != "" {
		d.workdir = request.DefaultWorkdir
	}
	w.WriteHeader(http.StatusNoContent)
}

func (q *initRequest) check() error {
	if len(q.AccessToken) > maxToken {
		return fmt.Errorf("accessToken has %d bytes, want at most %d", len(q.AccessToken), maxToken)
	}
	if len(q.EnvVars) > maxEnv {
		return fmt.Errorf("envVars has %d variables, want at most %d", len(q.EnvVars), maxEnv)
	}
	return checkEnv("envVars", q.EnvVars)
}

func checkEnv(field string, env map[string]string) error {
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf("%s: the name %q is not valid, want one without = and NUL", field, name)
		}
		if strings.ContainsRune(value, 0) {
			return fmt.Errorf("%s: the value of %s has a NUL", field, name)
		}
	}
	return nil
}

func (d *Daemon) envs(w http.ResponseWriter, _ *http.Request) {
	d.mu.Lock()
	env := maps.Clone(d.env)
	d.mu.Unlock()
	reply(w, env)
}

// metrics returns the container's resource usage in the form that E2B clients read.
func (d *Daemon) metrics(w http.ResponseWriter, _ *http.Request) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		refuse(w, http.StatusInternalServerError, fmt.Errorf("reading the machine's memory: %w", err))
		return
	}
	var disk unix.Statfs_t
	if err := unix.Statfs("/", &disk); err != nil {
		refuse(w, http.StatusInternalServerError, fmt.Errorf("reading the size of /: %w", err))
		return
	}
	unit, block := uint64(info.Unit), uint64(disk.Bsize) //nolint:gosec // sizes are positive
	d.mu.Lock()
	processes := len(d.byPID)
	d.mu.Unlock()
	reply(w, map[string]any{
		"ts": time.Now().Unix(), "cpu_count": runtime.NumCPU(), "mem_total": info.Totalram * unit,
		"mem_used": (info.Totalram - info.Freeram) * unit, "disk_total": disk.Blocks * block, "disk_used": (disk.Blocks - disk.Bfree) * block,
		"processes": processes, "version": d.version,
	})
}

func reply(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(what)
}

func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": status, "message": err.Error()})
}
