// SPDX-License-Identifier: Apache-2.0

//go:build !kind

package federation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/reach"
)

// ctl runs atollctl against an endpoint.
type ctl struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
}

func ctlFor(ctx context.Context, at stack.Endpoint, command string, args ...string) *ctl {
	args = append(append([]string{command}, at.Flags()...), args...)
	c := &ctl{Cmd: exec.CommandContext(ctx, filepath.Join(binDir, "atollctl"), args...)}
	c.Stdout, c.Stderr = &c.stdout, &c.stderr
	return c
}

// end waits, and returns the exit code.
func (c *ctl) end(t *testing.T) int {
	t.Helper()
	err := c.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode()
}

func (c *ctl) run(t *testing.T, stdin string) int {
	t.Helper()
	c.Stdin = strings.NewReader(stdin)
	must.Succeed(t, c.Start())
	return c.end(t)
}

// A sandbox of any cluster can be reached through the hub, and at its own cluster's worker.
func TestSandboxesAreReachedInAnyCluster(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "reach", equally(2)...)
	for _, cluster := range []string{"north", "west"} {
		id := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{Clusters: []string{cluster}, RequireClusters: true}).GetId()
		for place, at := range map[string]stack.Endpoint{"through the hub": atoll.HubEndpoint(), "at the worker": atoll.WorkerEndpoint(cluster)} {
			t.Run(cluster+" "+place, func(t *testing.T) { reachable(ctx, t, at, id) })
		}
	}
	t.Run("at another cluster's worker", func(t *testing.T) {
		id := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{Clusters: []string{"west"}, RequireClusters: true}).GetId()
		c := ctlFor(ctx, atoll.WorkerEndpoint("north"), "exec", id, "--", "true")
		if code := c.run(t, ""); code != 255 || !strings.Contains(c.stderr.String(), "NOT_FOUND") {
			t.Errorf("exits with %d: %s", code, &c.stderr)
		}
	})
}

// Without a daemon, files and processes tell why there are none, and what exec can do is done by it.
func TestWithoutADaemonExecIsTheWay(t *testing.T) {
	ctx, at := testContext(t), atoll.HubEndpoint()
	e := newEnv(ctx, t, "bare", equally(2)...)
	id := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{}).GetId()
	c := ctlFor(ctx, at, "ps", id)
	if code := c.run(t, ""); code != 8 || !strings.Contains(c.stderr.String(), "MISCONFIGURED") ||
		!strings.Contains(c.stderr.String(), "atoll-sandboxd") {
		t.Errorf("ps exits with %d: %s", code, &c.stderr)
	}
	c = ctlFor(ctx, atoll.WorkerEndpoint(id[strings.Index(id, "-")+1:]), "ps", id)
	if code := c.run(t, ""); code != 1 || !strings.Contains(c.stderr.String(), "UNIMPLEMENTED") {
		t.Errorf("ps at a worker exits with %d: %s", code, &c.stderr)
	}
	here, there := t.TempDir(), t.TempDir() // a sandbox's commands run on this machine
	must.Succeed(t, os.WriteFile(filepath.Join(here, "file"), []byte("content"), 0o600))
	for _, args := range [][]string{{filepath.Join(here, "file"), id + ":" + there + "/"}, {id + ":" + there + "/file", filepath.Join(here,
		"back")}} {
		c = ctlFor(ctx, at, "cp", args...)
		if code := c.run(t, ""); code != 0 {
			t.Errorf("cp %v exits with %d: %s", args, code, &c.stderr)
		}
	}
	c = ctlFor(ctx, at, "cp", id+":"+there+"/absent", here)
	if code := c.run(t, ""); code != 3 || !strings.Contains(c.stderr.String(), "NOT_FOUND") {
		t.Errorf("cp of a file that is not there exits with %d: %s", code, &c.stderr)
	}
	if back, err := os.ReadFile(filepath.Join(here, "back")); err != nil || string(back) != "content" {
		t.Errorf("%q came back, %v", back, err)
	}
	c = ctlFor(ctx, at, "run", "--env", e.Namespace+"/"+e.Name, "--", "sh", "-c", "echo out; exit 6")
	if code := c.run(t, ""); code != 6 || c.stdout.String() != "out\n" {
		t.Errorf("run exits with %d: %s%s", code, &c.stdout, &c.stderr)
	}
}

func reachable(ctx context.Context, t *testing.T, at stack.Endpoint, id string) {
	long := strings.Repeat("a line of some length\n", 100_000)
	c := ctlFor(ctx, at, "exec", "-i", id, "--", "sh", "-c", "cat; echo oops >&2; exit 7")
	if code := c.run(t, long); code != 7 || c.stdout.String() != long || c.stderr.String() != "oops\n" {
		t.Errorf("exec exits with %d, said %d bytes of %d, and %q", code, c.stdout.Len(), len(long), &c.stderr)
	}
	c = ctlFor(ctx, at, "exec", "-t", id, "--", "sh", "-c", "test -t 1 && echo terminal")
	if code := c.run(t, ""); code != 0 || !strings.Contains(c.stdout.String(), "terminal") {
		t.Errorf("exec with a terminal exits with %d: %s%s", code, &c.stdout, &c.stderr)
	}
	mark := unused("line")
	ctlFor(ctx, at, "exec", id, "--", "sh", "-c", "echo "+mark+` >> "$`+plane.ContainerLogEnv+`"`).run(t, "")
	c = ctlFor(ctx, at, "logs", "--tail=1", id)
	if code := c.run(t, ""); code != 0 || c.stdout.String() != mark+"\n" {
		t.Errorf("logs exits with %d: %s%s", code, &c.stdout, &c.stderr)
	}

	lis := testserver.Listen(t)
	inside := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.URL, r.Header.Get("Authorization"))
	})}
	go func() { _ = inside.Serve(lis) }()
	defer inside.Close()
	_, port, _ := net.SplitHostPort(lis.Addr().String())
	get := func(url string) string {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		must.Succeed(t, err)
		request.Header.Set("Authorization", "Bearer secret")
		request.Close = true
		answer, err := http.DefaultClient.Do(request)
		must.Succeed(t, err)
		defer answer.Body.Close()
		return string(must.Read(t, answer.Body))
	}
	if got := get(at.URL() + "/v1/sandboxes/" + id + "/ports/" + port + "/a/b?c=d"); got != "/a/b?c=d" {
		t.Errorf("HTTP to a port is answered %q", got)
	}
	forward := ctlFor(ctx, at, "port-forward", id, ":"+port)
	forward.Stdout = nil
	out, err := forward.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, forward.Start())
	var address string
	_, err = fmt.Fscan(out, &address)
	must.Succeed(t, err)
	if got := get("http://" + address + "/over/tcp"); got != "/over/tcpBearer secret" {
		t.Errorf("a forwarded port answers %q", got)
	}
	_ = forward.Process.Signal(os.Interrupt)
	if code := forward.end(t); code != 0 {
		t.Errorf("port-forward exits with %d: %s", code, &forward.stderr)
	}
}

// One slow reader delays nothing: neither the other tunnels of its cluster, nor the hub's calls to the worker.
func TestI7_ASlowReaderHoldsUpNoOther(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "slow", member{Cluster: "west", Replicas: 2})
	sandbox := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{})
	var written atomic.Int64
	lis := testserver.Listen(t)
	defer lis.Close()
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for piece := make([]byte, 64<<10); ; {
					n, err := conn.Write(piece)
					written.Add(int64(n))
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(lis.Addr().String())
	const slow = 8
	for range slow {
		dialer := websocket.Dialer{Subprotocols: []string{reach.TCPProtocol}}
		url := "ws" + strings.TrimPrefix(atoll.HubEndpoint().URL(), "http") + "/v1/sandboxes/" + sandbox.GetId() + "/ports/" + port
		socket, answer, err := dialer.DialContext(ctx, url, nil)
		must.Succeed(t, err)
		answer.Body.Close()
		defer socket.Close()
	}
	var last int64
	since := time.Now()
	wait.For(t, patience, "the sources to be held up", func(context.Context) error {
		if now := written.Load(); now != last {
			last, since = now, time.Now()
		}
		return wait.If(last > 0 && time.Since(since) >= 300*time.Millisecond, last)
	})
	if last > slow*(64<<20) {
		t.Errorf("%d MiB wait for those who do not read", last>>20)
	}
	for range 20 {
		began := time.Now()
		other := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{})
		c := ctlFor(ctx, atoll.HubEndpoint(), "exec", other.GetId(), "--", "echo", "quick")
		if code := c.run(t, ""); code != 0 || c.stdout.String() != "quick\n" {
			t.Fatalf("exec beside them exits with %d: %s", code, &c.stderr)
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("a claim and an exec beside them took %s", took)
		}
		e.mustRelease(ctx, t, hub, other)
		e.waitReady(ctx, t, map[string]int{"west": 1})
	}
	e.mustRelease(ctx, t, hub, sandbox)
	waitTunnels(ctx, t, "west", 0)
}

// waitTunnels waits until a worker has that many open tunnels.
func waitTunnels(ctx context.Context, t *testing.T, cluster string, want int) {
	t.Helper()
	wait.For(t, patience, fmt.Sprintf("%d tunnels in %s", want, cluster), func(ctx context.Context) error {
		open, err := atoll.SumMetrics(ctx, cluster, "atoll_worker_tunnels{")
		return errors.Join(err, wait.If(open == float64(want), open))
	})
}

// I13: connections to a sandbox end with its release, wherever their callers are; a hub that ends closes its tunnels.
func TestI13_TunnelsEndWithTheirSandboxAndTheirHub(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "reach-ends", member{Cluster: "west", Replicas: 1})
	sandbox := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{})
	start := func(command string, args ...string) *ctl {
		c := ctlFor(ctx, atoll.HubEndpoint(), command, args...)
		must.Succeed(t, c.Start())
		return c
	}
	inside := start("exec", sandbox.GetId(), "--", "sh", "-c", "while :; do echo here; sleep 0.1; done")
	follow := start("logs", "-f", sandbox.GetId())
	waitTunnels(ctx, t, "west", 2)
	e.mustRelease(ctx, t, hub, sandbox)
	if code := inside.end(t); code != 255 || !strings.Contains(inside.stderr.String(), "has ended") {
		t.Errorf("an exec that a release ended exits with %d: %s", code, &inside.stderr)
	}
	if code := follow.end(t); code != 1 || !strings.Contains(follow.stderr.String(), "has ended") {
		t.Errorf("a log that a release ended exits with %d: %s", code, &follow.stderr)
	}
	if c := ctlFor(ctx, atoll.HubEndpoint(), "exec", sandbox.GetId(), "--", "true"); c.run(t, "") != 9 ||
		!strings.Contains(c.stderr.String(), "has ended: Released") {
		t.Errorf("exec after the release: %s", &c.stderr)
	}

	e.waitReady(ctx, t, map[string]int{"west": 1})
	sandbox = e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{})
	inside = start("exec", sandbox.GetId(), "--", "sleep", "600")
	waitTunnels(ctx, t, "west", 1)
	t.Cleanup(func() { must.Succeed(t, heal(context.WithoutCancel(ctx))) })
	must.Succeed(t, atoll.Hub.Stop())
	if code := inside.end(t); code != 255 {
		t.Errorf("an exec whose hub ended exits with %d: %s", code, &inside.stderr)
	}
	waitTunnels(ctx, t, "west", 0)
}

// Data through a tunnel is activity; an open tunnel alone is not.
func TestASandboxThatIsTalkedWithIsNotIdle(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "reach-idle", member{Cluster: "west", Replicas: 1})
	// A busy machine may hold up a line for several seconds.
	sandbox := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{IdleTimeout: durationpb.New(10 * time.Second)})
	c := ctlFor(ctx, atoll.HubEndpoint(), "exec", sandbox.GetId(), "--", "sh", "-c",
		"for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo $i; sleep 1; done; echo last; exec sleep 600")
	began := time.Now()
	code := c.run(t, "")
	took := time.Since(began)
	if code != 255 || !strings.HasSuffix(c.stdout.String(), "last\n") {
		t.Errorf("exits with %d after %s: %s%s", code, took, &c.stdout, &c.stderr)
	}
	if most := time.Minute; took < 24*time.Second || took > most {
		t.Errorf("it ended after %s, want 25 s and a little", took)
	}
	e.caller.Holdings.Releasing(sandbox)
	if got, err := hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: sandbox.GetId()}); err == nil &&
		got.GetFailureReason() != "IdleTimeout" {
		t.Errorf("it ended as %s (%s)", got.GetStopReason(), got.GetFailureReason())
	}
}
