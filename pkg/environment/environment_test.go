// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/sandboxd"
)

const canary = "canary-5e1b"

// daemon serves a sandbox's port. It refuses its first connections.
type daemon struct {
	status  int
	refuse  int
	refusal error

	modeless bool // an older daemon
	mu       sync.Mutex
	asked    int
	body     string
	token    string
	paths    []string
	strange  bool // the default account is none of the image
	secrets  []string
	unread   error // of Secrets
}

func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paths = append(d.paths, r.URL.Path); r.URL.Path != "/init" {
		d.serveMore(w, r, string(body))
		return
	}
	d.body, d.token = r.Method+" "+r.URL.Path+" "+string(body), r.Header.Get("X-Access-Token")
	d.strange = d.strange || strings.Contains(d.body, "no-account-here")
	w.WriteHeader(d.status)
	_, _ = w.Write([]byte(canary))
}

// serveMore takes files but for read-only ones, and has no account no-account-here.
func (d *daemon) serveMore(w http.ResponseWriter, r *http.Request, body string) {
	switch {
	case r.URL.Path != "/files" && d.strange:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"code":"unauthenticated","message":"user ` + canary + `"}`))
	case r.URL.Path != "/files":
		w.Header().Set("Content-Type", "application/proto")
	case strings.HasPrefix(r.URL.Query().Get("path"), "/proc/"):
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"message":"` + canary + `"}`))
	default:
		if !d.modeless {
			w.Header().Set("X-Atoll-Mode", r.URL.Query().Get("mode"))
		}
		d.paths = append(d.paths, r.URL.RawQuery+" "+body)
	}
}

func (d *daemon) Open(_ context.Context, id string, what *federationv1.ReachCall) (reach.Tunnel, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked++; d.asked <= d.refuse {
		return nil, d.refusal
	}
	if what.GetPrepared() != nil && id == "01-east" && what.GetPreparing() {
		d.paths = append(d.paths, "prepared")
		ours, theirs := net.Pipe()
		return &pipe{Conn: ours, cut: make(chan struct{})}, theirs.Close()
	}
	if secrets := what.GetSecrets(); secrets != nil && id == "01-east" && what.GetPreparing() {
		for _, ref := range secrets.GetSecrets() {
			d.secrets = append(d.secrets, ref.GetEnv()+"="+ref.GetName()+"/"+ref.GetKey())
		}
		if secrets.GetToken() != d.token || d.token == "" {
			return nil, errors.New("another token than the daemon got before")
		}
		ours, theirs := net.Pipe()
		return &pipe{Conn: ours, cut: make(chan struct{})}, errors.Join(d.unread, theirs.Close())
	}
	if id != "01-east" || what.GetPort().GetPort() != 49983 {
		return nil, errors.New("another sandbox")
	}
	ours, theirs := net.Pipe()
	go func() {
		lis := &once{conn: theirs}
		_ = (&http.Server{Handler: d}).Serve(lis)
	}()
	return &pipe{Conn: ours, cut: make(chan struct{})}, nil
}

// once accepts one connection.
type once struct {
	net.Listener
	conn net.Conn
}

func (o *once) Accept() (net.Conn, error) {
	if o.conn == nil {
		return nil, net.ErrClosed
	}
	conn := o.conn
	o.conn = nil
	return conn, nil
}
func (o *once) Close() error   { return nil }
func (o *once) Addr() net.Addr { return &net.TCPAddr{} }

// pipe is a connection as a tunnel.
type pipe struct {
	net.Conn
	cut chan struct{}
}

func (p *pipe) Recv() ([]byte, error) {
	buffer := make([]byte, 4096)
	n, err := p.Read(buffer)
	return buffer[:n], err
}

func (p *pipe) Send(message []byte) error {
	_, err := p.Write(message)
	return err
}
func (p *pipe) CloseSend() error     { return nil }
func (p *pipe) Close(error)          { _ = p.Conn.Close() }
func (p *pipe) Cut() <-chan struct{} { return p.cut }

var key = make([]byte, 32)

func setter(d *daemon) *Setter {
	return New(Options{Opener: d, Key: func() ([]byte, error) { return key, nil }, Clock: clock.RealClock{}})
}

func running() *sandboxv1.Sandbox {
	return &sandboxv1.Sandbox{Id: "01-east", Phase: sandboxv1.Phase_RUNNING}
}

func preparing() *sandboxv1.Sandbox {
	return &sandboxv1.Sandbox{
		Id: "01-east", Phase: sandboxv1.Phase_STARTING, StatusDetail: &sandboxv1.StatusDetail{Reason: outcome.Preparing},
	}
}

// A sandbox runs for other callers once its daemon has all of it, and not before.
func TestPreparationEndsLast(t *testing.T) {
	in := &sandboxv1.CreateSandboxRequest{EnvVars: map[string]string{"A": "a"}, Files: []*sandboxv1.SandboxFile{{Path: "a"}}}
	d := &daemon{status: http.StatusNoContent}
	s := preparing()
	must.Succeed(t, setter(d).Set(t.Context(), s, in))
	if got := strings.Join(d.paths, ","); got != "/init,/files,mode=0644&path=a ,prepared" || s.GetPhase() != sandboxv1.Phase_RUNNING {
		t.Errorf("asked %s, and the sandbox is %s", got, s)
	}
	d = &daemon{status: http.StatusNoContent, modeless: true}
	s = preparing()
	if err := setter(d).Set(t.Context(), s, in); err == nil || slices.Contains(d.paths, "prepared") || !outcome.IsPreparing(s) {
		t.Errorf("without its file: %v, %v; the sandbox is %s", err, d.paths, s)
	}
	// A call that gives nothing to a sandbox that another call with its key prepares.
	d = &daemon{}
	err := setter(d).Set(t.Context(), preparing(), &sandboxv1.CreateSandboxRequest{})
	if err != nil || strings.Join(d.paths, ",") != "prepared" {
		t.Errorf("with nothing to give: %v, %v", err, d.paths)
	}
}

func withVariable() *sandboxv1.CreateSandboxRequest {
	return &sandboxv1.CreateSandboxRequest{EnvVars: map[string]string{"A": canary}}
}

func TestTheDaemonGetsFilesAndDefaults(t *testing.T) {
	d := &daemon{status: http.StatusNoContent}
	in := &sandboxv1.CreateSandboxRequest{Workdir: "/work", ExecUser: "agent", Files: []*sandboxv1.SandboxFile{
		{Path: "a b", Content: []byte("one")}, {Path: "/bin/tool", Content: []byte("two"), Mode: "0755"},
	}}
	must.Succeed(t, setter(d).Set(t.Context(), running(), in))
	if !strings.Contains(d.body, `"defaultUser":"agent","defaultWorkdir":"/work"`) {
		t.Errorf("began with %s", d.body)
	}
	want := "/init,/filesystem.Filesystem/MakeDir,/files,mode=0644&path=a+b one,/files,mode=0755&path=%2Fbin%2Ftool two"
	if got := strings.Join(d.paths, ","); got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	for name, tc := range map[string]struct {
		daemon *daemon
		in     *sandboxv1.CreateSandboxRequest
		reason problem.Reason
		says   string
	}{
		"an account that is not there": {d, &sandboxv1.CreateSandboxRequest{ExecUser: "no-account-here"}, problem.Invalid, "execUser"},
		"the same, with a folder": {d, &sandboxv1.CreateSandboxRequest{ExecUser: "no-account-here", Workdir: "/" + canary}, problem.Invalid,
			"execUser"},
		"a file that cannot be written": {d, &sandboxv1.CreateSandboxRequest{Files: []*sandboxv1.SandboxFile{{Path: "/proc/" + canary}}},
			problem.Invalid, "files[0]"},
		"an older daemon": {&daemon{status: http.StatusNoContent, modeless: true},
			&sandboxv1.CreateSandboxRequest{Files: []*sandboxv1.SandboxFile{{Path: canary}}}, problem.Misconfigured, "older"},
	} {
		err := setter(tc.daemon).Set(t.Context(), running(), tc.in)
		p := problem.FromError(err)
		if err == nil || p.Reason != tc.reason || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v, want %s about %s", name, err, tc.reason, tc.says)
		}
	}
}

func TestTheDaemonGetsTheEnvironment(t *testing.T) {
	// A container that has begun a moment ago refuses connections.
	d := &daemon{status: http.StatusNoContent, refuse: 2, refusal: problem.New(problem.Unavailable, "starting")}
	must.Succeed(t, setter(d).Set(t.Context(), running(), withVariable()))
	token := sandboxd.Token(key, "01-east")
	if want := `POST /init {"accessToken":"` + token + `","envVars":{"A":"` + canary + `"}}`; d.body != want || d.token != token {
		t.Errorf("asked %q with token %q, want %q", d.body, d.token, want)
	}
}

func TestTheWorkerGivesSecrets(t *testing.T) {
	in := &sandboxv1.CreateSandboxRequest{
		Secrets: []*sandboxv1.SandboxSecret{{Env: "A", Name: "creds", Key: "token"}, {Env: "B", Name: "creds", Key: "b"}},
		Files:   []*sandboxv1.SandboxFile{{Path: "a"}},
	}
	d := &daemon{status: http.StatusNoContent}
	must.Succeed(t, setter(d).Set(t.Context(), running(), in))
	if got := strings.Join(d.secrets, ","); got != "A=creds/token,B=creds/b" || len(d.paths) != 3 {
		t.Errorf("the worker was asked for %s, the daemon for %s", got, d.paths)
	}
	for _, unread := range []*problem.Error{
		problem.New(problem.Misconfigured, "secrets[0]: there is none"), problem.New(problem.Unimplemented, "an older worker"),
	} {
		d := &daemon{status: http.StatusNoContent, unread: unread}
		err := setter(d).Set(t.Context(), running(), in)
		if p := problem.FromError(err); err == nil || p.Reason != unread.Reason || len(d.paths) != 1 {
			t.Errorf("%v after %s, want %v", err, d.paths, unread)
		}
	}
}

func TestNoErrorHasAValue(t *testing.T) {
	for name, tc := range map[string]struct {
		daemon *daemon
		want   problem.Reason
	}{
		"a daemon with another token": {&daemon{status: http.StatusUnauthorized}, problem.Misconfigured},
		"a redirect":                  {&daemon{status: http.StatusFound}, problem.Misconfigured},
		"no access":                   {&daemon{refuse: 1, refusal: problem.New(problem.Forbidden, "closed")}, problem.Forbidden},
		"no daemon": {
			&daemon{refuse: 1 << 20, refusal: problem.New(problem.Unavailable, "%s: refused", reach.NothingListens)}, problem.Misconfigured,
		},
		"out of reach": {&daemon{refuse: 1 << 20, refusal: errors.New("connection refused")}, problem.Unavailable},
	} {
		ctx, leave := context.WithTimeout(t.Context(), patience)
		if tc.daemon.refuse > 1 {
			leave()
			ctx, leave = context.WithTimeout(t.Context(), pause/2) // after the first attempt
		}
		err := setter(tc.daemon).Set(ctx, running(), withVariable())
		leave()
		if p := problem.FromError(err); p == nil || p.Reason != tc.want || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
	broken := New(Options{Key: func() ([]byte, error) { return nil, errors.New("no key") }})
	for _, err := range []error{broken.Ready(), broken.Set(t.Context(), running(), withVariable())} {
		if p := problem.FromError(err); p == nil || p.Reason != problem.Misconfigured {
			t.Errorf("without a key: %v", err)
		}
	}
}
