// SPDX-License-Identifier: Apache-2.0

package podtunnel_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/worker/internal/podtunnel"
	"navix.sh/atoll/worker/internal/sandboxes"
)

func (w *world) handlerOf(h *reach.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.serving.Add(1)
		defer w.serving.Add(-1)
		if match := h.Match(r); match != nil {
			match.ServeHTTP(out, r)
			return
		}
		http.NotFound(out, r)
	})
}

// run executes a command with Kubernetes' own client.
func (w *world) run(ctx context.Context, id string, options remotecommand.StreamOptions, command ...string) error {
	w.t.Helper()
	query := url.Values{"command": command}
	for name, wanted := range map[string]bool{
		"stdin": options.Stdin != nil, "stdout": options.Stdout != nil, "stderr": options.Stderr != nil, "tty": options.Tty,
	} {
		query.Set(name, fmt.Sprint(wanted))
	}
	executor, err := remotecommand.NewWebSocketExecutor(&rest.Config{Host: w.server.URL}, http.MethodGet,
		w.server.URL+"/v1/sandboxes/"+id+"/exec?"+query.Encode())
	w.Must(err)
	return executor.StreamWithContext(ctx, options)
}

func (w *world) dial(id, rest string, protocols ...string) (*websocket.Conn, error) {
	dialer := websocket.Dialer{Subprotocols: protocols}
	conn, answer, err := dialer.DialContext(w.t.Context(), "ws"+strings.TrimPrefix(w.server.URL, "http")+"/v1/sandboxes/"+id+"/"+rest, nil)
	if answer != nil {
		defer answer.Body.Close()
	}
	if errors.Is(err, websocket.ErrBadHandshake) {
		err = problem.Read(answer.StatusCode, answer.Body)
	}
	return conn, err
}

// get returns the response to a GET, and why it broke off.
func (w *world) get(url string) (status int, body, why string) {
	w.t.Helper()
	answer, err := http.Get(url)
	w.Must(err)
	defer answer.Body.Close()
	text := must.Read(w.t, answer.Body)
	return answer.StatusCode, string(text), answer.Trailer.Get("Atoll-Error")
}

// listen serves every connection to a port of this machine, which stands for every Pod's.
func listen(t *testing.T, serve func(net.Conn)) (port string) {
	t.Helper()
	lis := testserver.Listen(t)
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	_, port, _ = net.SplitHostPort(lis.Addr().String())
	return port
}

func TestExec(t *testing.T) { bothWays(t, execs) }

func execs(t *testing.T, w *world) {
	id := w.claim().GetId()

	var stdout, stderr bytes.Buffer
	long := strings.Repeat("0123456789abcdef", 64<<10)
	err := w.run(t.Context(), id, remotecommand.StreamOptions{Stdin: strings.NewReader(long), Stdout: &stdout, Stderr: &stderr},
		"sh", "-c", "cat; echo oops >&2; exit 3")
	var exit utilexec.CodeExitError
	if !errors.As(err, &exit) || exit.Code != 3 {
		t.Errorf("a command that exits with 3: %v", err)
	}
	if stdout.String() != long || stderr.String() != "oops\n" {
		t.Errorf("stdout has %d bytes of %d, stderr is %q", stdout.Len(), len(long), stderr.String())
	}

	stdout.Reset()
	sizes := make(sizeQueue, 1)
	sizes <- &remotecommand.TerminalSize{Width: 123, Height: 45}
	err = w.run(t.Context(), id, remotecommand.StreamOptions{
		Stdin: strings.NewReader(""), Stdout: &stdout, Tty: true, TerminalSizeQueue: sizes,
	}, "sh", "-c", "until [ \"$(stty size)\" = '45 123' ]; do :; done; test -t 0 && echo terminal")
	if err != nil || !strings.Contains(stdout.String(), "terminal") {
		t.Errorf("a terminal of 123 by 45: %q, %v", stdout.String(), err)
	}

	if err := w.run(t.Context(), id, remotecommand.StreamOptions{Stdout: &stdout}, "/no/such/command"); err == nil {
		t.Error("a command that is not there succeeded")
	}
	w.tunnels(0)
}

type sizeQueue chan *remotecommand.TerminalSize

func (q sizeQueue) Next() *remotecommand.TerminalSize {
	select {
	case size := <-q:
		return size
	default:
		close(q)
		return nil
	}
}

func TestLogs(t *testing.T) { bothWays(t, logs) }

func logs(t *testing.T, w *world) {
	id := w.claim().GetId()
	print := func(line string) {
		w.Must(w.run(t.Context(), id, remotecommand.StreamOptions{Stdout: io.Discard}, "sh", "-c",
			"echo "+line+` >> "$`+plane.ContainerLogEnv+`"`))
	}
	print("one")
	print("two")
	url := w.server.URL + "/v1/sandboxes/" + id + "/logs?"
	if _, body, _ := w.get(url + "tail=1"); body != "two\n" {
		t.Errorf("the last line: %q", body)
	}
	follow, err := http.Get(url + "follow=true")
	w.Must(err)
	defer follow.Body.Close()
	lines := bufio.NewScanner(follow.Body)
	for _, want := range []string{"one", "two", "three"} {
		if want == "three" {
			print(want)
		}
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("line %q, want %q: %v", lines.Text(), want, lines.Err())
		}
	}
	w.release(id)
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("after the release: %q, %v", lines.Text(), lines.Err())
	}
	if why := follow.Trailer.Get("Atoll-Error"); !strings.Contains(why, "has ended") {
		t.Errorf("the log ended because of %q", why)
	}
	for query, status := range map[string]int{"tail=x": 400, "previous=true": 400, "container=other": 404} {
		if got, body, _ := w.get(url + query); got != status {
			t.Errorf("%s is answered %d: %s", query, got, body)
		}
	}
}

// The log of a runtime is a file in the container, as commands there see it.
func TestTheLogFileOfARuntime(t *testing.T) { bothWays(t, theLogFileOfARuntime) }

func theLogFileOfARuntime(t *testing.T, w *world) {
	w.Must(os.WriteFile(w.logFile, []byte("one\ntwo\n"), 0o600))
	id := w.claim().GetId()
	url := w.server.URL + "/v1/sandboxes/" + id + "/logs?"
	for query, want := range map[string]string{"runtime=app": "one\ntwo\n", "runtime=app&tail=1": "two\n"} {
		if _, body, why := w.get(url + query); body != want || why != "" {
			t.Errorf("%s: %q, %s", query, body, why)
		}
	}
	if status, _, why := w.get(url + "runtime=lost"); status != 200 || !strings.Contains(why, "could not be read") {
		t.Errorf("a file that is not there: %d, %s", status, why)
	}
	for query, status := range map[string]int{"runtime=quiet": 404, "runtime=other": 404, "runtime=app&since=1s": 400,
		"runtime=app&container=main": 400} {
		if got, body, _ := w.get(url + query); got != status {
			t.Errorf("%s is answered %d: %s", query, got, body)
		}
	}
	follow, err := http.Get(url + "runtime=app&follow=true&tail=1")
	w.Must(err)
	defer follow.Body.Close()
	lines := bufio.NewScanner(follow.Body)
	for _, want := range []string{"two", "three"} {
		if want == "three" {
			file, err := os.OpenFile(w.logFile, os.O_APPEND|os.O_WRONLY, 0)
			w.Must(err)
			_, err = file.WriteString(want + "\n")
			w.Must(errors.Join(err, file.Close()))
		}
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("line %q, want %q: %v", lines.Text(), want, lines.Err())
		}
	}
	w.release(id)
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("after the release: %q, %v", lines.Text(), lines.Err())
	}
}

func TestHTTPToAPort(t *testing.T) { bothWays(t, httpToAPort) }

func httpToAPort(t *testing.T, w *world) {
	id := w.claim().GetId()
	upgrader := websocket.Upgrader{}
	var seen atomic.Pointer[http.Request]
	inside := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/socket" {
			seen.Store(r)
			out.Header().Add("Set-Cookie", "a=b; Path=/app; Domain=example.org")
			out.Header().Set("Location", "/login?x=1")
			body, _ := io.ReadAll(r.Body)
			_, _ = out.Write(body)
			return
		}
		conn, err := upgrader.Upgrade(out, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		kind, message, err := conn.ReadMessage()
		if err == nil {
			_ = conn.WriteMessage(kind, append([]byte("echo "), message...))
		}
	})}
	lis := testserver.Listen(t)
	go func() { _ = inside.Serve(lis) }()
	t.Cleanup(func() { _ = inside.Close() })
	_, port, _ := net.SplitHostPort(lis.Addr().String())
	base := "/v1/sandboxes/" + id + "/ports/" + port

	body := strings.Repeat("much", 2<<20)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.server.URL+base+"/a//b%2Fc/../d?q=1", strings.NewReader(body))
	w.Must(err)
	request.Header.Set("Authorization", "Bearer atoll_secret")
	request.Header.Set("X-Own", "kept")
	answer, err := http.DefaultTransport.RoundTrip(request)
	w.Must(err)
	got, err := io.ReadAll(answer.Body)
	if err != nil || string(got) != body {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(body), err)
	}
	_ = answer.Body.Close()
	r := seen.Load()
	if r.RequestURI != "/a//b%2Fc/../d?q=1" || r.Header.Get("Authorization") != "" || r.Header.Get("X-Own") != "kept" ||
		r.Host != "localhost:"+port {
		t.Errorf("the sandbox saw %s at %s with %v", r.RequestURI, r.Host, r.Header)
	}
	if cookie := answer.Header.Get("Set-Cookie"); cookie != "a=b; Path="+base+"/app" {
		t.Errorf("the cookie is %q", cookie)
	}
	if location := answer.Header.Get("Location"); location != base+"/login?x=1" {
		t.Errorf("the redirect leads to %q", location)
	}

	socket, err := w.dial(id, "ports/"+port+"/socket")
	w.Must(err)
	w.Must(socket.WriteMessage(websocket.TextMessage, []byte("hello")))
	if kind, message, err := socket.ReadMessage(); err != nil || kind != websocket.TextMessage || string(message) != "echo hello" {
		t.Errorf("the WebSocket inside said %q, %v", message, err)
	}
	_ = socket.Close()

	w.Must(inside.Close())
	if answer, err = http.Get(w.server.URL + base + "/"); err != nil || answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a port without a listener: %v, %v", answer, err)
	}
	_ = answer.Body.Close()
	w.tunnels(0)
}

func TestTCPToAPort(t *testing.T) { bothWays(t, tcpToAPort) }

func tcpToAPort(t *testing.T, w *world) {
	id := w.claim().GetId()
	port := listen(t, func(conn net.Conn) {
		all, _ := io.ReadAll(conn) // until the caller ends its side
		_, _ = fmt.Fprintf(conn, "heard %d bytes", len(all))
	})
	socket, err := w.dial(id, "ports/"+port, reach.TCPProtocol)
	w.Must(err)
	defer socket.Close()
	const much = 3<<20 + 17
	w.Must(socket.WriteMessage(websocket.BinaryMessage, make([]byte, much)))
	w.Must(socket.WriteMessage(websocket.BinaryMessage, nil))
	var said []byte
	for {
		_, message, err := socket.ReadMessage()
		w.Must(err)
		if len(message) == 0 {
			break
		}
		said = append(said, message...)
	}
	if want := fmt.Sprintf("heard %d bytes", much); string(said) != want {
		t.Errorf("said %q, want %q", said, want)
	}
	if _, _, err := socket.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("after both had their say: %v", err)
	}
	w.tunnels(0)
}

// A reader that does not read blocks its own source, after a bounded number of bytes, and no other (I10).
func TestASlowReaderHoldsUpItselfAlone(t *testing.T) { bothWays(t, aSlowReaderHoldsUpItselfAlone) }

func aSlowReaderHoldsUpItselfAlone(t *testing.T, w *world) {
	id := w.claim().GetId()
	var written atomic.Int64
	port := listen(t, func(conn net.Conn) {
		piece := make([]byte, 64<<10)
		for {
			n, err := conn.Write(piece)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	socket, err := w.dial(id, "ports/"+port, reach.TCPProtocol)
	w.Must(err)
	defer socket.Close()
	if _, _, err := socket.ReadMessage(); err != nil {
		t.Fatal(err)
	}
	var last int64
	w.Eventually("the source to be held up", func() error {
		now := written.Load()
		defer func() { last = now }()
		time.Sleep(200 * time.Millisecond) // of no progress
		return wait.If(now != 0 && written.Load() == now && last == now, now)
	})
	if last > 64<<20 {
		t.Errorf("%d bytes wait for a caller who does not read", last)
	}
	t.Logf("%d KiB wait", last>>10)
	for range 20 {
		began := time.Now()
		var out bytes.Buffer
		if err := w.run(t.Context(), id, remotecommand.StreamOptions{Stdout: &out}, "echo", "quick"); err != nil || out.String() != "quick\n" {
			t.Fatalf("%q, %v", out.String(), err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("an exec beside it took %s", took)
		}
	}
	w.release(id)
	w.Eventually("the source and its reader to be let go", func() error {
		return wait.If(w.service.Tunnels() == 0 && w.serving.Load() == 0, w.service.Tunnels())
	})
}

// I13: open tunnels end with the release, not after it, and no caller gets in any more.
func TestATunnelEndsBeforeItsReleaseIsAnswered(t *testing.T) {
	bothWays(t, aTunnelEndsBeforeItsReleaseIsAnswered)
}

func aTunnelEndsBeforeItsReleaseIsAnswered(t *testing.T, w *world) {
	id := w.claim().GetId()
	var inside atomic.Int64
	port := listen(t, func(conn net.Conn) {
		piece := make([]byte, 1)
		for {
			n, err := conn.Read(piece)
			inside.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	socket, err := w.dial(id, "ports/"+port, reach.TCPProtocol)
	w.Must(err)
	defer socket.Close()
	stop := make(chan struct{})
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		for {
			select {
			case <-stop:
				return
			default:
				if socket.WriteMessage(websocket.BinaryMessage, []byte("x")) != nil {
					return
				}
			}
		}
	}()
	failed := make(chan error, 1)
	go func() {
		failed <- w.run(t.Context(), id, remotecommand.StreamOptions{Stdout: io.Discard}, "sh", "-c",
			"while :; do echo still here; sleep 0.01; done")
	}()
	w.Eventually("bytes to arrive", func() error {
		return wait.If(inside.Load() > 0 && w.service.Tunnels() >= 2, inside.Load())
	})
	w.release(id)
	atRelease := inside.Load()
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("an exec that a release ended: %v", err)
	}
	<-flooded
	close(stop)
	w.tunnels(0)
	if after := inside.Load(); after > atRelease+64<<10 { // what was under way in the API server
		t.Errorf("%d bytes arrived after the release was answered", after-atRelease)
	}
	if _, err := w.dial(id, "exec?command=true", reach.ExecProtocol); err == nil || problem.FromError(err).Reason != problem.NotFound {
		t.Errorf("exec after the release: %v", err)
	}
	if known, err := w.activity.GetLastActive(t.Context()); err != nil || len(known) > 0 {
		t.Errorf("activity of ended sandboxes is kept: %v, %v", known, err)
	}
}

func TestAWorkerThatLostItsLeaseLetsGo(t *testing.T) { bothWays(t, aWorkerThatLostItsLeaseLetsGo) }

func aWorkerThatLostItsLeaseLetsGo(t *testing.T, w *world) {
	id := w.claim().GetId()
	failed := make(chan error, 1)
	out, in := io.Pipe()
	go func() {
		failed <- w.run(t.Context(), id, remotecommand.StreamOptions{Stdout: in}, "sh", "-c", "echo up; exec sleep 60")
	}()
	_, err := io.ReadFull(out, make([]byte, len("up\n"))) // and nothing after that
	w.Must(err)
	w.lost.Store(true)
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "does not lead") {
		t.Errorf("a silent exec at a worker that leads no more: %v", err)
	}
	if _, err := w.dial(id, "exec?command=true", reach.ExecProtocol); err == nil || problem.FromError(err).Reason != problem.Unavailable {
		t.Errorf("exec at a worker that leads no more: %v", err)
	}
}

// A kubelet responds with the first line. Until there is one, a caller that follows the log is not refused.
func TestASilentLogIsFollowed(t *testing.T) {
	w := newWorld(t)
	id := w.claim().GetId()
	answer, err := http.Get(w.server.URL + "/v1/sandboxes/" + id + "/logs?follow=true")
	w.Must(err)
	defer answer.Body.Close()
	w.Must(w.run(t.Context(), id, remotecommand.StreamOptions{Stdout: io.Discard}, "sh", "-c", `echo first >> "$`+plane.ContainerLogEnv+`"`))
	if lines := bufio.NewScanner(answer.Body); answer.StatusCode != http.StatusOK || !lines.Scan() || lines.Text() != "first" {
		t.Errorf("%s, then %q, %v", answer.Status, lines.Text(), lines.Err())
	}
}

// stuck is an API server that holds its requests.
type stuck struct{ asked chan struct{} }

func (s stuck) Dial(ctx context.Context, _ sandboxes.Place, _ *federationv1.ReachCall) (reach.Tunnel, error) {
	s.asked <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// I13: an exec without a response from the API server may yet be carried out, in whatever container the Pod has by then. So the
// Pod is not reset for the next tenant.
func TestI13APodWithAnUnansweredExecIsReplaced(t *testing.T) {
	upstream := stuck{make(chan struct{}, 1)}
	w := newWorld(t, func(o *podtunnel.Options) { o.Upstream = upstream })
	for _, asked := range []bool{false, true} {
		sandbox := w.claim()
		failed := make(chan error, 1)
		if asked {
			go func() {
				_, err := w.dial(sandbox.GetId(), "exec?command=true", reach.ExecProtocol)
				failed <- err
			}()
			<-upstream.asked
		}
		w.release(sandbox.GetId())
		if asked {
			if err := <-failed; err == nil || problem.FromError(err).Reason != problem.NotFound {
				t.Errorf("an exec that was under way at the release: %v", err)
			}
		}
		if replaced := w.isReplaced(sandbox.GetPod()); replaced != asked {
			t.Fatalf("with an unanswered exec %t, the Pod is replaced %t", asked, replaced)
		}
	}
	w.tunnels(0)
}

// isReplaced waits for the end of a released sandbox, and reports whether its Pod is replaced, not reset.
func (w *world) isReplaced(name string) (replaced bool) {
	w.t.Helper()
	w.Eventually("the Pod to be reset or gone", func() error {
		pod := &corev1.Pod{}
		err := w.Live.Get(w.t.Context(), w.Key(name), pod)
		reset := err == nil && pod.DeletionTimestamp == nil && pod.Labels[v1alpha1.SandboxPhaseLabelKey] == v1alpha1.SandboxPhaseIdle
		replaced = apierrors.IsNotFound(err) || err == nil && pod.DeletionTimestamp != nil
		return wait.If(reset || replaced, pod.Labels)
	})
	return replaced
}

// I13: an exec whose connection breaks before the API server has responded may yet be carried out as well.
func TestI13APodWhoseExecLostItsConnectionIsReplaced(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if conn, _, err := http.NewResponseController(rw).Hijack(); err == nil {
			_ = conn.Close()
		}
	}))
	defer server.Close()
	upstream, err := podtunnel.NewAPIServer(&rest.Config{Host: server.URL})
	must.Succeed(t, err)
	w := newWorld(t, func(o *podtunnel.Options) { o.Upstream = upstream })
	sandbox := w.claim()
	if _, err := w.dial(sandbox.GetId(), "exec?command=true", reach.ExecProtocol); err == nil ||
		problem.FromError(err).Reason != problem.Unavailable {
		t.Errorf("an exec whose connection broke: %v, want %q", err, problem.Unavailable)
	}
	w.release(sandbox.GetId())
	if !w.isReplaced(sandbox.GetPod()) {
		t.Error("the Pod is reset, and the exec may reach its next tenant")
	}
	w.tunnels(0)
}

// The API server's own refusal of an exec is told as what it is.
func TestARefusedExecHasItsReason(t *testing.T) {
	place := east.Place(t)
	upstream, err := podtunnel.NewAPIServer(place.Config())
	must.Succeed(t, err)
	_, err = upstream.Dial(t.Context(), sandboxes.Place{Pod: place.Key("absent"), Container: "main"}, &federationv1.ReachCall{
		What: &federationv1.ReachCall_Exec{Exec: &federationv1.ExecReach{Command: []string{"true"}, Stdout: true}},
	})
	if err == nil || problem.FromError(err).Reason != problem.NotFound {
		t.Errorf("an exec in a Pod that does not exist: %v, want %q", err, problem.NotFound)
	}
}

func TestTunnelsOfASandboxAreBounded(t *testing.T) { bothWays(t, tunnelsOfASandboxAreBounded) }

func tunnelsOfASandboxAreBounded(t *testing.T, w *world) {
	id := w.claim().GetId()
	port := listen(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	refused := 0
	for range 130 {
		socket, err := w.dial(id, "ports/"+port, reach.TCPProtocol)
		if err != nil {
			if problem.FromError(err).Reason != problem.RateLimited {
				t.Fatal(err)
			}
			refused++
			continue
		}
		defer socket.Close()
	}
	if refused != 2 {
		t.Errorf("%d of 130 were refused, want 2", refused)
	}
	w.release(id)
	w.tunnels(0)
}

// I14: a team's share is that of all its sandboxes, for all callers. The world's sandboxes have one team.
func TestI14ATeamsSandboxesShareItsTunnels(t *testing.T) {
	w := newWorld(t, func(o *podtunnel.Options) { o.Shares = reach.Shares{All: 8, Sandbox: 3} })
	first, second := w.claim().GetId(), w.claim().GetId()
	port := listen(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	open := func(id string, want int) string {
		t.Helper()
		for n := range 8 {
			socket, err := w.dial(id, "ports/"+port, reach.TCPProtocol)
			if err == nil {
				t.Cleanup(func() { _ = socket.Close() })
				continue
			}
			if n != want || problem.FromError(err).Reason != problem.RateLimited {
				t.Errorf("after %d tunnels, want %d: %v", n, want, err)
			}
			return err.Error()
		}
		t.Errorf("sandbox %s has 8 of 8 tunnels", id)
		return ""
	}
	if why := open(first, 3); !strings.Contains(why, "sandbox "+first+" has 3") {
		t.Errorf("refused for %s", why)
	}
	if why := open(second, 1); !strings.Contains(why, "has 4 of this cluster's 8") {
		t.Errorf("refused for %s", why)
	}
	w.release(first)
	w.release(second)
	w.tunnels(0)
}
