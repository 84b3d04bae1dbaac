// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/go-logr/logr"

	_ "navix.sh/atoll" // the test depends on the sources that it compiles
	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/sandboxd"
)

// sandbox is a process of atoll-sandboxd, to which an opener's tunnels lead.
type sandbox struct {
	socket string
	home   string
	mu     sync.Mutex
	opened int
	busy   func(nth int) bool     // reports whether a tunnel is refused; nil: none is
	hangs  func(head []byte) bool // reports whether the daemon does not get the body of a request; nil: it gets all
}

// binary is atoll-sandboxd, built once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sandboxd")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "atoll-sandboxd")
	out, err := exec.Command("go", "build", "-o", path, "../../sandboxd").CombinedOutput()
	return path, errors.Join(err, os.WriteFile(path+".log", out, 0o600))
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	path, err := binary()
	must.Succeed(t, err)
	s := &sandbox{home: t.TempDir(), socket: filepath.Join(t.TempDir(), "s")}
	cmd := exec.Command(path, "--listen=unix:"+s.socket)
	cmd.Dir, cmd.Env = s.home, append(os.Environ(), "HOME="+s.home)
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	wait.For(t, 10*time.Second, "the daemon", func(context.Context) error {
		conn, err := net.Dial("unix", s.socket)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	return s
}

func (s *sandbox) Open(_ context.Context, id string, what *federationv1.ReachCall) (Tunnel, error) {
	switch {
	case what.GetPort().GetPort() != 49983:
		return nil, problem.New(problem.Forbidden, "port %d", what.GetPort().GetPort())
	case id == "bare-east":
		return nil, problem.New(problem.Unavailable, "%s: connection refused", NothingListens)
	case id != "a-east":
		return nil, problem.New(problem.NotFound, "sandbox %s not found", id)
	}
	s.mu.Lock()
	s.opened++
	busy, hangs := s.busy != nil && s.busy(s.opened), s.hangs
	s.mu.Unlock()
	if busy {
		return nil, problem.New(problem.RateLimited, "sandbox %s has too many conversations already", id)
	}
	conn, err := net.Dial("unix", s.socket)
	if err != nil {
		return nil, err
	}
	return &wire{conn: conn, cut: make(chan struct{}), hangs: hangs}, nil
}

// wire is a connection as a tunnel.
type wire struct {
	conn   net.Conn
	hangs  func(head []byte) bool
	hung   bool
	buffer [MaxMessage]byte
	cut    chan struct{}
}

func (p *wire) Recv() ([]byte, error) {
	n, err := p.conn.Read(p.buffer[:])
	if n > 0 {
		return p.buffer[:n], nil
	}
	return nil, err
}

func (p *wire) Send(message []byte) error {
	if p.hung {
		return nil
	}
	if head, _, whole := bytes.Cut(message, []byte("\r\n\r\n")); whole && p.hangs != nil && p.hangs(head) {
		p.hung, message = true, message[:len(head)+4]
	}
	_, err := p.conn.Write(message)
	return err
}

func (p *wire) CloseSend() error     { return nil }
func (p *wire) Close(error)          { _ = p.conn.Close() }
func (p *wire) Cut() <-chan struct{} { return p.cut }

// api is a server of the handler for a sandbox.
type api struct {
	t    *testing.T
	base string
	*sandbox
}

func newAPI(t *testing.T) *api {
	a := &api{t: t, sandbox: newSandbox(t)}
	h := NewHandler(a.sandbox, logr.Discard())
	h.Tokens = func(id string) (string, error) { return sandboxd.Token([]byte("key"), id), nil }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if of := h.Match(r); of != nil {
			of.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	}))
	a.base = server.URL + "/v1/sandboxes/"
	t.Cleanup(func() { h.Close(); server.Close() })
	return a
}

func (a *api) call(method, path string, body io.Reader, header ...string) (int, http.Header, string) {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.t.Context(), method, a.base+path, body)
	must.Succeed(a.t, err)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	must.Succeed(a.t, err)
	defer response.Body.Close()
	return response.StatusCode, response.Header, string(must.Read(a.t, response.Body))
}

// want calls and returns the body, which must come with a status.
func (a *api) want(status int, method, path, body string, header ...string) string {
	a.t.Helper()
	got, _, text := a.call(method, path, strings.NewReader(body), header...)
	if got != status {
		a.t.Fatalf("%s %s: %d %s, want %d", method, path, got, text, status)
	}
	return text
}

func TestFilesThroughTheDaemon(t *testing.T) {
	a := newAPI(t)
	large := strings.Repeat("0123456789abcdef", 1<<18)
	at := "a-east/files?path=" + url.QueryEscape("sub/large file")
	a.want(200, "PUT", at, large) // the first call: the daemon has no token yet
	if kept := a.want(200, "GET", at, ""); kept != large {
		t.Errorf("%d bytes came back of %d", len(kept), len(large))
	}
	if text, err := os.ReadFile(filepath.Join(a.home, "sub", "large file")); err != nil || string(text) != large {
		t.Errorf("the sandbox has %d bytes, %v", len(text), err)
	}
	status, header, part := a.call("GET", at, nil, "Range", "bytes=3-6")
	if status != http.StatusPartialContent || part != "3456" || header.Get("Content-Range") != "bytes 3-6/4194304" ||
		header.Get("Content-Disposition") != "attachment" || header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("a range: %d %q %v", status, part, header)
	}
	a.want(416, "GET", at, "", "Range", "bytes=99999999-")
	var one sandboxv1.File
	must.Succeed(t, json.Unmarshal([]byte(a.want(200, "GET", "a-east/files:stat?path=sub", "")), &one))
	if one.Type != "DIRECTORY" || one.Path != filepath.Join(a.home, "sub") || one.ModifiedAt == nil {
		t.Errorf("stat: %+v", one)
	}
	a.want(200, "POST", "a-east/files:mkdir", `{"path":"more/deep"}`)
	a.want(200, "POST", "a-east/files:move", `{"from":"sub/large file","to":"more/deep/moved"}`)
	var all sandboxv1.FileList
	must.Succeed(t, json.Unmarshal([]byte(a.want(200, "GET", "a-east/files:list?path=more&depth=2", "")), &all))
	if len(all.Files) != 2 || all.Files[1].Name != "moved" || all.Files[1].Size != int64(len(large)) || all.Files[1].Type != "FILE" {
		t.Errorf("list: %+v", all)
	}
	a.want(204, "DELETE", "a-east/files?path=more", "")
	a.want(404, "GET", "a-east/files?path=more", "")
	a.want(404, "DELETE", "a-east/files?path=more", "")
}

func TestArchivesThroughTheDaemon(t *testing.T) {
	a := newAPI(t)
	a.want(200, "PUT", "a-east/files?path=from/sub/data", "some data")
	for _, format := range []string{"tar", "zip"} {
		status, header, archive := a.call("GET", "a-east/files:archive?path=from&format="+format, nil)
		if status != 200 || header.Get("Content-Type") != archiveKinds[format] || header.Get("Content-Disposition") != "attachment" {
			t.Fatalf("%s: %d %v", format, status, header)
		}
		to := "a-east/files:archive?path=to-" + format + "&format=" + format
		if text := a.want(200, "PUT", to, archive); !strings.Contains(text, `"files":2`) {
			t.Errorf("%s: %s", format, text)
		}
		if text := a.want(200, "GET", "a-east/files?path=to-"+format+"/sub/data", ""); text != "some data" {
			t.Errorf("%s: %q came back", format, text)
		}
		a.want(400, "PUT", to, "nonsense that is longer than a header"+strings.Repeat("x", 512))
	}
	a.want(400, "GET", "a-east/files:archive?path=from&format=rar", "")
	a.want(400, "GET", "a-east/files:archive?path=from/sub/data", "")
	a.want(404, "GET", "a-east/files:archive?path=none", "")
	a.want(405, "POST", "a-east/files:archive?path=from", "")
	a.want(422, "PUT", "bare-east/files:archive?path=from", "x")
}

func TestProcessesThroughTheDaemon(t *testing.T) {
	a := newAPI(t)
	run := func(body string) (r sandboxv1.CommandResult) {
		t.Helper()
		must.Succeed(t, json.Unmarshal([]byte(a.want(200, "POST", "a-east/processes", body)), &r))
		return r
	}
	if r := run(`{"command":["sh","-c","echo out; echo err >&2; exit 7"]}`); r.ExitCode != 7 || r.Stdout != "out\n" || r.Stderr != "err\n" ||
		r.PID == 0 {
		t.Errorf("%+v", r)
	}
	if r := run(`{"command":["sh","-c","cat; pwd; echo $A"],"stdin":"in\n","envVars":{"A":"b"},"workdir":"/"}`); r.Stdout != "in\n/\nb\n" {
		t.Errorf("%+v", r)
	}
	if r := run(`{"command":["sh","-c","head -c 1000000 /dev/zero; echo end >&2"]}`); len(r.Stdout) != maxOutput || !r.StdoutTruncated ||
		r.Stderr != "end\n" || r.StderrTruncated {
		t.Errorf("%d bytes, truncated %t, stderr %q", len(r.Stdout), r.StdoutTruncated, r.Stderr)
	}
	if r := run(`{"command":["sh","-c","echo so far; sleep 100"],"timeout":"500ms"}`); !r.TimedOut || r.ExitCode != -1 ||
		r.Stdout != "so far\n" {
		t.Errorf("a timeout: %+v", r)
	}
	events := a.want(200, "POST", "a-east/processes", `{"command":["sh","-c","echo one; exit 3"]}`, "Accept", "text/event-stream")
	if !strings.HasPrefix(events, "event: START\ndata: {\"pid\":") || !strings.HasSuffix(events,
		"event: STDOUT\ndata: {\"data\":\"b25lCg==\"}\n\nevent: EXIT\ndata: {\"exitCode\":3}\n\n") {
		t.Errorf("events:\n%s", events)
	}
	a.want(404, "POST", "a-east/processes", `{"command":["no-such-program"]}`)
}

// A command whose input cannot be delivered ends, and its caller is told; because it would wait for its input for ever.
func TestACommandWithoutItsInputEnds(t *testing.T) {
	a := newAPI(t)
	a.want(200, "GET", "a-east/processes", "") // the daemon has its token
	for _, accept := range []string{"application/json", "text/event-stream"} {
		a.mu.Lock()
		command := a.opened + 1
		// Each try to reach the daemon opens a second tunnel if the first one is refused: those of the input, then of the first SIGKILL.
		a.busy = func(nth int) bool { return nth > command && nth <= command+4 }
		a.mu.Unlock()
		_, _, text := a.call("POST", "a-east/processes", strings.NewReader(`{"command":["cat"],"stdin":"text"}`), "Accept", accept)
		if !strings.Contains(text, "input was not delivered") || !strings.Contains(text, "RATE_LIMITED") {
			t.Errorf("%s: the caller is told %s", accept, text)
		}
		wait.For(t, 10*time.Second, "the command to end", func(context.Context) error {
			left := a.want(200, "GET", "a-east/processes", "")
			return wait.If(left == "{\"processes\":[]}\n", left)
		})
	}
}

func TestProcessesAreListedAndSignalled(t *testing.T) {
	a := newAPI(t)
	ended := make(chan string, 1)
	go func() { ended <- a.want(200, "POST", "a-east/processes", `{"command":["sleep","1000"]}`) }()
	var all sandboxv1.ProcessList
	wait.For(t, 10*time.Second, "the process", func(context.Context) error {
		all = sandboxv1.ProcessList{}
		must.Succeed(t, json.Unmarshal([]byte(a.want(200, "GET", "a-east/processes", "")), &all))
		return wait.If(len(all.Processes) == 1 && strings.Join(all.Processes[0].Command, " ") == "sleep 1000", "none")
	})
	at := "a-east/processes/" + strconv.Itoa(int(all.Processes[0].PID)) + ":signal"
	a.want(400, "POST", at, `{"signal":"SIGHUP"}`)
	a.want(204, "POST", at, `{"signal":"SIGTERM"}`)
	var r sandboxv1.CommandResult
	must.Succeed(t, json.Unmarshal([]byte(<-ended), &r))
	if r.ExitCode != -1 || r.TimedOut || r.Status != "signal: terminated" {
		t.Errorf("%+v", r)
	}
	a.want(404, "POST", at, `{"signal":"SIGTERM"}`)
}

func TestWhatTheDaemonIsNotAskedFor(t *testing.T) {
	a := newAPI(t)
	long := strings.Repeat("x", maxPathBytes+1)
	for _, row := range []struct {
		status             int
		method, path, body string
	}{
		{400, "GET", "a-east/files", ""}, {400, "GET", "a-east/files?path=" + long, ""}, {400, "GET", "a-east/files?path=a%00b", ""},
		{400, "GET", "a-east/files?path=%ff", ""}, {400, "GET", "a-east/files?path=x&depth=1", ""}, {405, "POST", "a-east/files?path=x", ""},
		{400, "GET", "a-east/files:list?path=/&depth=0", ""}, {400, "GET", "a-east/files:list?path=/&depth=33", ""},
		{400, "POST", "a-east/files:mkdir", `{"path":""}`}, {400, "POST", "a-east/files:mkdir", `{"pth":"x"}`},
		{400, "POST", "a-east/files:mkdir", `{"path":"` + strings.Repeat("x", maxBody) + `"}`},
		{400, "POST", "a-east/files:move", `{"from":"x"}`},
		{400, "POST", "a-east/processes", `{}`}, {400, "POST", "a-east/processes", `{"command":["x"],"timeout":"soon"}`},
		{400, "POST", "a-east/processes", `{"command":["x"],"envVars":{"A=B":""}}`}, {400, "POST", "a-east/processes", `{"command":["x"]} more`},
		{400, "POST", "a-east/processes?user=unknown", `{"command":["true"]}`}, {400, "PUT", "a-east/files?path=x&user=unknown", "x"},
		{400, "POST", "a-east/processes/x:signal", `{"signal":"SIGTERM"}`}, {405, "GET", "a-east/processes/1:signal", ""},
		{404, "GET", "a-east/files:nothing?path=x", ""}, {404, "GET", "a-east/processes/1", ""},
		{404, "GET", "b-east/files?path=x", ""}, {404, "POST", "b-east/processes", `{"command":["x"]}`},
		{422, "GET", "bare-east/files?path=x", ""}, {422, "PUT", "bare-east/files?path=x", "x"}, {422, "GET", "bare-east/files:list?path=x", ""},
		{422, "POST", "bare-east/processes", `{"command":["true"]}`}, {422, "GET", "bare-east/processes", ""},
	} {
		if status, _, text := a.call(row.method, row.path, strings.NewReader(row.body)); status != row.status {
			t.Errorf("%s %.80s %.60s: %d %.200s, want %d", row.method, row.path, row.body, status, text, row.status)
		}
	}
	if text := a.want(422, "GET", "bare-east/files?path=x", ""); !strings.Contains(text, "MISCONFIGURED") ||
		!strings.Contains(text, "atoll-sandboxd") {
		t.Errorf("without a daemon: %s", text)
	}
	a.want(403, "GET", "a-east/files?path=x", "", "Origin", "https://evil.example")
}

// What another one has initialized is not used, and nothing of a body is lost on a daemon that has no token yet.
func TestADaemonWithTheTokenOfAnother(t *testing.T) {
	a := newAPI(t)
	conn := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", a.socket)
	}}}
	defer conn.CloseIdleConnections()
	response, err := conn.Post("http://daemon/init", "application/json", bytes.NewReader([]byte(`{"accessToken":"other"}`)))
	must.Succeed(t, err)
	_ = response.Body.Close()
	for _, text := range []string{
		a.want(422, "PUT", "a-east/files?path=x", "x"), a.want(422, "GET", "a-east/processes", ""),
		a.want(422, "POST", "a-east/processes", `{"command":["true"]}`),
	} {
		if !strings.Contains(text, "--e2b-key-file") {
			t.Errorf("the error does not tell what to do: %s", text)
		}
	}
}

func TestADaemonThatIsNotReached(t *testing.T) {
	away, nothing := "cluster east is not connected", NothingListens+": connection refused"
	overHTTP := func(message string) error {
		return &sandboxd.StatusError{Status: http.StatusServiceUnavailable, Body: []byte(`{"message":"` + message + `"}`)}
	}
	for name, tt := range map[string]struct {
		err  error
		want problem.Reason
	}{
		"nothing listens":                 {fmt.Errorf("dialling: %w", problem.New(problem.Unavailable, "%s", nothing)), problem.Misconfigured},
		"nothing listens, by way of HTTP": {overHTTP(nothing), problem.Misconfigured},
		"a worker that is away":           {problem.New(problem.Unavailable, "%s", away), problem.Unavailable},
		"the same, by way of HTTP":        {overHTTP(away), problem.Unavailable},
		"no response":                     {context.DeadlineExceeded, problem.Unavailable},
	} {
		if got := problem.FromError(NotReached(time.Second, NoDaemon(tt.err), tt.err)); got.Reason != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// A call that fails in the sandbox fails again; one whose response broke off may succeed the next time.
func TestTheReasonOfAFailureInTheSandbox(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want problem.Reason
	}{
		"the daemon's":              {connect.NewWireError(connect.CodeInternal, errors.New("input/output error")), problem.Internal},
		"the daemon's, by HTTP":     {&sandboxd.StatusError{Status: http.StatusInternalServerError}, problem.Internal},
		"a response that broke off": {connect.NewError(connect.CodeInternal, io.ErrUnexpectedEOF), problem.Unavailable},
	} {
		if got := problem.FromError((&inside{}).explain(tt.err)); got.Reason != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}
