// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/listing"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/serve"
)

// scripted is a server whose responses a test sets.
type scripted struct {
	sandboxv1.UnimplementedSandboxesServer
	sandboxv1.UnimplementedClaimsServer
	sandboxv1.UnimplementedEnvsServer
	sandboxv1.UnimplementedClustersServer

	mu     sync.Mutex
	phases []sandboxv1.Phase // of the sandbox, look by look; the last stays
	last   func()            // called at a look at the last phase; may be nil
	claim  func() (*sandboxv1.Claim, error)
	create func(context.Context, *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error)
	env    *sandboxv1.Env // nil: one with a name alone
	noEnv  error          // of GetEnv

	envs     func() []*sandboxv1.Env     // of all namespaces; nil: default/py
	clusters func() []*sandboxv1.Cluster // nil: east, which is fresh
}

// looks returns a function that returns the values one by one. The last stays, and done is called when it is returned again.
func looks[T any](done func(), values ...T) func() T {
	var mu sync.Mutex
	last := false
	return func() T {
		mu.Lock()
		defer mu.Unlock()
		if last {
			done()
		}
		value := values[0]
		if last = len(values) == 1; !last {
			values = values[1:]
		}
		return value
	}
}

func (s *scripted) sandbox() *sandboxv1.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	phase := s.phases[0]
	if len(s.phases) > 1 {
		s.phases = s.phases[1:]
	} else if s.last != nil {
		s.last()
	}
	out := &sandboxv1.Sandbox{Id: "id-east", Phase: phase, ClusterId: "east", Namespace: "default", Env: "py", ClaimKey: "k"}
	if phase == sandboxv1.Phase_ENDED {
		out.StopReason, out.FailureReason = "Failed", "OOMKilled"
	}
	return out
}

func (s *scripted) CreateSandbox(ctx context.Context, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	if s.create != nil {
		return s.create(ctx, r)
	}
	return s.sandbox(), nil
}

func (s *scripted) GetSandbox(_ context.Context, r *sandboxv1.GetSandboxRequest) (*sandboxv1.Sandbox, error) {
	if r.GetId() != "id-east" {
		return nil, problem.New(problem.NotFound, "no sandbox %q", r.GetId())
	}
	return s.sandbox(), nil
}

func (s *scripted) ReleaseSandbox(context.Context, *sandboxv1.ReleaseSandboxRequest) (*sandboxv1.Sandbox, error) {
	return s.sandbox(), nil
}

func (s *scripted) UpdateSandbox(context.Context, *sandboxv1.UpdateSandboxRequest) (*sandboxv1.Sandbox, error) {
	return s.sandbox(), nil
}

func (s *scripted) TouchSandbox(context.Context, *sandboxv1.TouchSandboxRequest) (*sandboxv1.Sandbox, error) {
	return s.sandbox(), nil
}

func (s *scripted) PauseSandbox(context.Context, *sandboxv1.PauseSandboxRequest) (*sandboxv1.Sandbox, error) {
	return s.sandbox(), nil
}

func (s *scripted) ResumeSandbox(ctx context.Context, r *sandboxv1.ResumeSandboxRequest) (*sandboxv1.Sandbox, error) {
	if len(s.phases) == 0 {
		return s.UnimplementedSandboxesServer.ResumeSandbox(ctx, r)
	}
	return s.sandbox(), nil
}

func (s *scripted) ListSandboxes(_ context.Context, r *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	if _, faults := listing.Parse(r); faults.Err() != nil {
		return nil, faults.Err()
	}
	out := &sandboxv1.ListSandboxesResponse{}
	if one := s.sandbox(); one.GetPhase() != sandboxv1.Phase_ENDED {
		out.Sandboxes = append(out.Sandboxes, one)
	}
	return out, nil
}

func (s *scripted) GetClaim(_ context.Context, r *sandboxv1.GetClaimRequest) (*sandboxv1.Claim, error) {
	claim, err := s.claim()
	if claim != nil && claim.GetClaimKey() == "" {
		claim.ClaimKey, claim.Namespace = r.GetClaimKey(), r.GetNamespace()
	}
	return claim, err
}

func (s *scripted) GetEnv(_ context.Context, r *sandboxv1.GetEnvRequest) (*sandboxv1.Env, error) {
	if s.noEnv != nil {
		return nil, s.noEnv
	}
	if s.env != nil {
		return s.env, nil
	}
	return &sandboxv1.Env{Namespace: r.GetNamespace(), Name: r.GetName()}, nil
}

func (s *scripted) ListEnvs(_ context.Context, r *sandboxv1.ListEnvsRequest) (*sandboxv1.ListEnvsResponse, error) {
	envs := []*sandboxv1.Env{{Namespace: "default", Name: "py"}}
	if s.envs != nil {
		envs = s.envs()
	}
	out := &sandboxv1.ListEnvsResponse{}
	for _, env := range envs {
		if r.GetNamespace() == "" || r.GetNamespace() == env.GetNamespace() {
			out.Envs = append(out.Envs, env)
		}
	}
	return out, nil
}

func (s *scripted) ListClusters(context.Context, *sandboxv1.ListClustersRequest) (*sandboxv1.ListClustersResponse, error) {
	if s.clusters == nil {
		return &sandboxv1.ListClustersResponse{Clusters: []*sandboxv1.Cluster{{Id: "east", State: sandboxv1.ClusterState_FRESH}}}, nil
	}
	return &sandboxv1.ListClustersResponse{Clusters: s.clusters()}, nil
}

func (s *scripted) GetCluster(ctx context.Context, r *sandboxv1.GetClusterRequest) (*sandboxv1.Cluster, error) {
	list, _ := s.ListClusters(ctx, nil)
	for _, cluster := range list.GetClusters() {
		if cluster.GetId() == r.GetId() {
			return cluster, nil
		}
	}
	return nil, problem.New(problem.NotFound, "no cluster %q", r.GetId())
}

func (s *scripted) ExplainEnv(_ context.Context, r *sandboxv1.ExplainEnvRequest) (*sandboxv1.Decision, error) {
	return &sandboxv1.Decision{ClusterId: "east", Pool: "py-a", Message: "no idle Pod free in " + r.GetNamespace() + "/" + r.GetName()}, nil
}

// runner runs atollctl against a server at an address.
type runner string

func serveScripted(t *testing.T, s *scripted) runner {
	t.Helper()
	return runner(serving(t, func(server *grpc.Server) {
		sandboxv1.RegisterSandboxesServer(server, s)
		sandboxv1.RegisterClaimsServer(server, s)
		sandboxv1.RegisterEnvsServer(server, s)
		sandboxv1.RegisterClustersServer(server, s)
	}))
}

// serving returns the address of a server with services.
func serving(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	server := grpc.NewServer()
	register(server)
	return testserver.ServeGRPC(t, server)
}

func (r runner) run(ctx context.Context, line string) (stdout, stderr string, code exitCode) {
	return r.telling(ctx, line, make(chan struct{}, 1))
}

// telling is run that signals what is written to stderr.
func (r runner) telling(ctx context.Context, line string, told chan<- struct{}) (stdout, stderr string, code exitCode) {
	var out bytes.Buffer
	errOut := &signalling{told: told}
	err := command(ctx, &out, errOut, append([]string{"--server", string(r)}, strings.Fields(line)...)...)
	if err != nil && !errors.As(err, &code) {
		reportError(errOut, err)
		code = exitCodeOf(err)
	}
	return out.String(), errOut.String(), code
}

type signalling struct {
	bytes.Buffer
	told chan<- struct{}
}

func (s *signalling) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	select {
	case s.told <- struct{}{}:
	default:
	}
	return n, err
}

// A command that needs a live sandbox prints the record of one that has ended, and its exit code is 9. One that shows it, or
// releases it, has done what it should.
func TestCommandsOnAnEndedSandbox(t *testing.T) {
	run := serveScripted(t, &scripted{phases: []sandboxv1.Phase{sandboxv1.Phase_ENDED}}).run
	for line, want := range map[string]exitCode{
		"create --env py --claim-key k":    exitEnded,
		"update id-east --idle-timeout 1h": exitEnded,
		"touch id-east":                    exitEnded,
		"pause id-east":                    exitEnded,
		"resume id-east":                   exitEnded,
		"port-forward id-east 8000":        exitEnded,
		"sandboxes id-east":                0,
		"release id-east":                  0,
	} {
		stdout, stderr, code := run(t.Context(), line)
		if code != want || !strings.Contains(stdout+stderr, "OOMKilled") {
			t.Errorf("%s: exit code %d, want %d\n%s%s", line, code, want, stdout, stderr)
		}
		if want == exitEnded && (!strings.Contains(stderr, "sandbox id-east has ended: Failed: OOMKilled") ||
			!strings.Contains(stderr, "another key")) {
			t.Errorf("%s: says %q", line, stderr)
		}
	}
}

// The advice after a create fits its error.
func TestHintsFitTheError(t *testing.T) {
	s := &scripted{claim: func() (*sandboxv1.Claim, error) {
		e := problem.New(problem.NotFound, "no claim with key %q", "nope")
		e.ClaimKey = "nope"
		return nil, e
	}}
	run := serveScripted(t, s).run
	if _, stderr, code := run(t.Context(), "claim nope"); code != 3 || strings.Contains(stderr, "--claim-key") ||
		strings.Count(stderr, "\n") != 1 {
		t.Errorf("a key that nothing is known of: %d %q", code, stderr)
	}
	for reason, want := range map[problem.Reason]string{
		problem.ClaimKeyConflict: "see what the key stands for: atollctl claim k -n red",
		problem.OutcomeUnknown:   "the same command with --claim-key k asks for its sandbox again",
		problem.QueueFull:        "the same command with --claim-key k can be repeated safely",
		problem.NotFound:         "",
		problem.Misconfigured:    "",
	} {
		s.create = func(context.Context, *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
			e := problem.New(reason, "no")
			e.ClaimKey = "k"
			return nil, e
		}
		_, stderr, _ := run(t.Context(), "create --env red/py --claim-key k")
		if !strings.Contains(stderr, want) || want == "" && strings.Count(stderr, "\n") != 1 || strings.Contains(stderr, "rpc error") {
			t.Errorf("%s: %q, want %q", reason, stderr, want)
		}
	}
}

func TestErrorsAreInOurWords(t *testing.T) {
	server := serveScripted(t, &scripted{})
	run := server.run
	for line, want := range map[string]string{
		"resume a b":                             "resuming b: method ResumeSandbox not implemented (UNIMPLEMENTED)",
		"create --env py --startup-timeout soon": `--startup-timeout: "soon" is not valid, want a duration such as 90s or 10m`,
		"create --env py --startup-timeout=-5s":  `--startup-timeout: "-5s" is not valid, want a duration such as 90s or 10m, not below 0`,
		"logs id-east --since=-5m":               `--since: "-5m0s" is not valid, want a duration such as 90s or 10m, not below 0`,
		"clusters --timeout=-1s":                 `--timeout: "-1s" is not valid, want a duration such as 90s or 10m, not below 0`,
		"create --env py --multiplier x":         `--multiplier: "x" is not valid, want a whole number`,
		"sandboxes --phase asleep":               `--phase: "asleep" is not valid, want one of: starting, running, stopping, ended`,
		"sandboxes --clustre east":               "did you mean --cluster?",
		"envs a/b -n c":                          "name two namespaces",
		"create python":                          "did you mean --env python?",
		"clusters drian east":                    "there is no atollctl clusters drian; did you mean drain?",
		"clusters cordon east":                   "and 2 were given; usage: atollctl clusters [ID] [flags]; or with one of: approve, drain,",
		"hub backupp":                            "there is no atollctl hub backupp; did you mean backup?",
		"hub frobnicate":                         "there is no atollctl hub frobnicate; there are: accept-loss, backup,",
		"clusters invite east --namespaces=":     `--namespaces: "" is not valid, want names`,
		"clusters set east --teams= --envs a/b":  `--teams: "" is not valid, want names`,
		"hub backup /tmp --force":                `FILE: "/tmp" is not valid, want a file: that is a directory`,
		"hub backup -":                           `FILE: "-" is not valid, want a file`,
		"access apply -f /dev/null":              "reading /dev/null: it is empty; want roles, bindings, limits",
		"audit main.go":                          "there is no line of an audit in main.go",
		"simulate --trace none.csv":              "open none.csv: no such file",
		"create --env py --hooks /none":          "--hooks: open /none: no such file",
		"explain":                                "an Env is missing, or --sandbox",
		"--token-file /none clusters":            "reading --token-file: open /none: no such file",
		"port-forward id-east 99999":             `port "99999" is not valid, want [LOCAL:]REMOTE`,
		"port-forward id-east 1:2:3":             `port "1:2:3" is not valid, want [LOCAL:]REMOTE`,
		"--server ftp://x clusters":              `--server: "ftp://x" is not valid, want HOST:PORT, http://HOST:PORT or https://HOST:PORT`,
		"--server http://x/v1 clusters":          `--server: "http://x/v1" is not valid`,
		"sandboxes --sort-by foo":                `--sort-by: "foo" is not valid, want one of id, `,
		"sandboxes -l a:b":                       `--selector: "a:b" is not valid, want requirements such as`,
	} {
		_, stderr, code := run(t.Context(), line)
		if !strings.Contains(stderr, want) || strings.Contains(stderr, "rpc error") || code != exitUsage && !strings.HasPrefix(line, "resume") {
			t.Errorf("%s: exit code %d, %q, want %q", line, code, stderr, want)
		}
	}
	if _, stderr, code := runner("https://"+string(server)).run(t.Context(), "clusters"); code != 4 ||
		!strings.Contains(stderr, "it speaks no TLS: leave out --ca-file") {
		t.Errorf("TLS to a server without: %d %s", code, stderr)
	}
	if _, stderr, code := runner("127.0.0.1:1").run(t.Context(), "clusters"); code != 4 || strings.Contains(stderr, "desc =") ||
		!strings.Contains(stderr, "127.0.0.1:1 was not reached: dial tcp") {
		t.Errorf("a server that is not there: %d %s", code, stderr)
	}
}

// The server may be named by a URL, which says whether to use TLS.
func TestTheServerMayBeAURL(t *testing.T) {
	for server, want := range map[string]app{
		"hub:8080":              {server: "hub:8080"},
		"http://127.0.0.1:8080": {server: "127.0.0.1:8080", plaintext: true},
		"https://localhost:8/":  {server: "localhost:8", overTLS: true},
		"https://hub.example":   {server: "hub.example:443", overTLS: true},
		"http://[::1]":          {server: "[::1]:80", plaintext: true},
	} {
		a := app{server: server}
		if err := a.resolve(); err != nil || a != want {
			t.Errorf("%s: %+v, %v, want %+v", server, a, err, want)
		}
		if config, err := a.tlsConfig(); err != nil || (config == nil) == (a.overTLS || server == "hub:8080") {
			t.Errorf("%s: TLS %t, %v", server, config != nil, err)
		}
	}
	server := serveScripted(t, &scripted{phases: []sandboxv1.Phase{sandboxv1.Phase_RUNNING}})
	if _, stderr, code := ("http://" + server).run(t.Context(), "sandboxes id-east"); code != 0 {
		t.Errorf("by URL: %d %s", code, stderr)
	}
}

// A sandbox has one Env, so that explain needs no name of it.
func TestExplainOfASandboxFindsItsEnv(t *testing.T) {
	run := serveScripted(t, &scripted{phases: []sandboxv1.Phase{sandboxv1.Phase_RUNNING}}).run
	if stdout, stderr, code := run(t.Context(), "explain --sandbox id-east"); code != 0 || !strings.Contains(stdout, "in default/py") {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
}

// A create has the time that its server gives it, and tells meanwhile what it waits for.
func TestCreateOutwaitsTheServerAndTellsWhatItWaitsFor(t *testing.T) {
	var left time.Duration
	told := make(chan struct{}, 1)
	s := &scripted{claim: func() (*sandboxv1.Claim, error) {
		return &sandboxv1.Claim{State: sandboxv1.Claim_WAITING, ClusterId: "east", Pool: "py-a", Message: "no Pod of the pool is idle",
			Waiting: &sandboxv1.Waiting{Position: 3, Claims: 7, Waited: durationpb.New(time.Second)}}, nil
	}}
	bounded := false
	s.create = func(ctx context.Context, _ *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
		var deadline time.Time
		if deadline, bounded = ctx.Deadline(); bounded {
			left = time.Until(deadline)
		}
		select {
		case <-told:
		case <-ctx.Done():
		}
		return &sandboxv1.Sandbox{Id: "id-east", Phase: sandboxv1.Phase_RUNNING}, nil
	}
	server := serveScripted(t, s)
	_, stderr, code := server.telling(t.Context(), "create --env py --claim-key k --startup-timeout 10m", told)
	if code != 0 || !regexp.MustCompile(`^waiting for [1-9]\d*s: waiting in east/py-a, position 3 of 7, no Pod of the pool is idle\n`).
		MatchString(stderr) {
		t.Errorf("exit code %d, told %q", code, stderr)
	}
	if left < 10*time.Minute {
		t.Errorf("the call has %s, want more than its startup timeout", left)
	}
	told <- struct{}{}
	if _, _, code := server.run(t.Context(), "create --env py --claim-key k"); code != 0 || bounded {
		t.Errorf("without a startup timeout: exit code %d, bounded %t, want the pool's", code, bounded)
	}
	request := &sandboxv1.CreateSandboxRequest{Namespace: "default", Env: "py"}
	if text := claimProgress(t.Context(), clients{envs: explainer{s: s}}, request); text !=
		"a claim goes to east/py-a: no idle Pod free in default/py" {
		t.Errorf("without a key: %q", text)
	}
}

// A call that --timeout ends says how long it had, in the flag's words, and what a create with a key can do next.
func TestAServerThatHangs(t *testing.T) {
	ended := t.Context().Done()
	server := serveScripted(t, &scripted{create: func(context.Context, *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
		<-ended
		return nil, context.Canceled
	}})
	silent := testserver.Listen(t) // takes connections, and says nothing
	defer silent.Close()
	for _, tc := range []struct {
		server     runner
		line, hint string
	}{
		{server, "create --env py --claim-key k", "the same command with --claim-key k asks for its sandbox again"},
		{runner(silent.Addr().String()), "clusters", ""},
		{runner(silent.Addr().String()), "logs id-east", ""},
	} {
		_, stderr, code := tc.server.run(t.Context(), tc.line+" --timeout 50ms")
		if code != 4 || !strings.HasPrefix(stderr, "atollctl: "+string(tc.server)+" has not responded within 50ms (--timeout) (DEADLINE)\n") ||
			!strings.Contains(stderr, tc.hint) || strings.Contains(stderr, "context deadline") {
			t.Errorf("%s: exit code %d, %q", tc.line, code, stderr)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, stderr, code := runner(silent.Addr().String()).run(ctx, "cp "+someSandbox+":/data - --timeout 50ms")
	if code != 4 || !strings.Contains(stderr, "timeout awaiting response headers") {
		t.Errorf("cp: exit code %d, %q", code, stderr)
	}
}

// explainer is a client of a server in this process.
type explainer struct {
	sandboxv1.EnvsClient
	s *scripted
}

func (e explainer) ExplainEnv(ctx context.Context, r *sandboxv1.ExplainEnvRequest, _ ...grpc.CallOption) (*sandboxv1.Decision, error) {
	return e.s.ExplainEnv(ctx, r)
}

func TestWatchAndWait(t *testing.T) {
	const starting, running, over = sandboxv1.Phase_STARTING, sandboxv1.Phase_RUNNING, sandboxv1.Phase_ENDED
	s := &scripted{phases: []sandboxv1.Phase{starting, starting, running}}
	run := serveScripted(t, s).run
	if stdout, stderr, code := run(t.Context(), "sandboxes id-east --wait=running -o name"); code != 0 || stdout != "id-east\n" {
		t.Errorf("waiting for a sandbox that starts: %d %s%s", code, stdout, stderr)
	}
	s.phases = []sandboxv1.Phase{starting, over}
	if _, stderr, code := run(t.Context(), "get sb id-east --wait running"); code != exitEnded || !strings.Contains(stderr, "has ended") {
		t.Errorf("waiting for a sandbox that ends: %d %s", code, stderr)
	}
	s.phases = []sandboxv1.Phase{starting}
	if _, stderr, code := run(t.Context(), "sandboxes --wait=running --timeout 3s"); code != 4 ||
		!strings.Contains(stderr, "id-east is starting") {
		t.Errorf("waiting in vain: %d %s", code, stderr)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.phases, s.last = []sandboxv1.Phase{starting, running, running, over}, cancel // the list misses it, and Get shows its end
	s.phases = append(s.phases, over)
	stdout, stderr, code := run(ctx, "get sandboxes -w -o json")
	for _, phase := range []string{"STARTING", "RUNNING"} {
		if strings.Count(stdout, `"phase": "`+phase+`"`) != 1 {
			t.Errorf("%s is not told once (%d, %s):\n%s", phase, code, stderr, stdout)
		}
	}
}

// What is watched is printed once, and then each item that changes, without what stayed. An interrupt is its end.
func TestWatchAndWaitOfEnvsClustersAndClaims(t *testing.T) {
	const fresh, suspect = sandboxv1.ClusterState_FRESH, sandboxv1.ClusterState_SUSPECT
	env := func(name string, idle int32) *sandboxv1.Env {
		return &sandboxv1.Env{Namespace: "default", Name: name, Idle: idle}
	}
	cluster := func(id string, state sandboxv1.ClusterState) *sandboxv1.Cluster {
		return &sandboxv1.Cluster{Id: id, State: state}
	}
	for line, tc := range map[string]struct {
		s      func(done func()) *scripted
		want   string
		errors string
	}{
		"envs -w -n default": {func(done func()) *scripted {
			return &scripted{envs: looks(done, []*sandboxv1.Env{env("py", 1), env("js", 7)}, []*sandboxv1.Env{env("py", 1)})}
		}, `ENV .*\ndefault/py +1 .*\ndefault/js +7 .*\n`, "default/js is gone\n"},
		"envs -w": {func(done func()) *scripted {
			return &scripted{envs: looks(done, []*sandboxv1.Env{env("py", 1), env("js", 7)}, []*sandboxv1.Env{env("py", 2), env("js", 7)})}
		}, `ENV .*\ndefault/py +1 .*\ndefault/js +7 .*\ndefault/py +2 .*\n`, ""},
		"clusters -w": {func(done func()) *scripted {
			return &scripted{clusters: looks(done, []*sandboxv1.Cluster{cluster("east", fresh), cluster("west", fresh)},
				[]*sandboxv1.Cluster{cluster("east", suspect), cluster("west", fresh)})}
		}, `CLUSTER .*\neast +FRESH .*\nwest +FRESH .*\neast +SUSPECT .*\n`, ""},
		"claim k -w": {func(done func()) *scripted {
			look := looks(done, sandboxv1.Claim_WAITING, sandboxv1.Claim_RUNNING)
			return &scripted{claim: func() (*sandboxv1.Claim, error) { return &sandboxv1.Claim{ClaimKey: "k", State: look()}, nil }}
		}, `CLAIM-KEY .*\nk +- +WAITING .*\nk +- +RUNNING .*\n`, ""},
		"clusters --wait=fresh": {func(func()) *scripted {
			return &scripted{clusters: looks(func() {}, []*sandboxv1.Cluster{cluster("east", suspect)},
				[]*sandboxv1.Cluster{cluster("east", fresh)})}
		}, `CLUSTER .*\neast +FRESH .*\n`, ""},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stdout, stderr, code := serveScripted(t, tc.s(cancel)).run(ctx, line)
			if code != 0 || stderr != tc.errors || !regexp.MustCompile("^"+tc.want+"$").MatchString(stdout) {
				t.Errorf("%d %s%s", code, stdout, stderr)
			}
		})
	}
}

// get and describe are there for those who know kubectl.
func TestHabitsOfKubectl(t *testing.T) {
	s := &scripted{
		phases: []sandboxv1.Phase{sandboxv1.Phase_RUNNING},
		claim: func() (*sandboxv1.Claim, error) {
			return &sandboxv1.Claim{State: sandboxv1.Claim_WAITING, Message: "no Pod of the pool is idle"}, nil
		},
		envs: func() []*sandboxv1.Env {
			return []*sandboxv1.Env{{Namespace: "default", Name: "py"}, {Namespace: "red", Name: "js"}}
		},
	}
	run := serveScripted(t, s).run
	const bothEnvs = `^ENV .*\ndefault/py .*\nred/js .*\n$`
	const sandboxes = `^SANDBOX .*\nid-east +RUNNING +east +default/py .*\n$`
	for line, want := range map[string]string{
		"describe sandbox id-east":          `(?m)^id: id-east$(.|\n)*^phase: RUNNING$`,
		"describe sb id-east":               `(?m)^id: id-east$`,
		"describe env py":                   `^name: py\nnamespace: default\n$`,
		"describe env red/js":               `^name: js\nnamespace: red\n$`,
		"describe envs js -n red -o json":   `^{\n  "name": "js",\n  "namespace": "red"\n}\n$`,
		"describe claim k":                  `^claimKey: k\nmessage: no Pod of the pool is idle\nnamespace: default\nstate: WAITING\n$`,
		"describe cluster east":             `^id: east\nstate: FRESH\n$`,
		"get envs":                          bothEnvs,
		"get envs -A":                       bothEnvs,
		"get envs --all-namespaces -o name": `^default/py\nred/js\n$`,
		"get envs -n red":                   `^ENV .*\nred/js .*\n$`,
		"get env py -n default -o yaml":     `^name: py\nnamespace: default\n$`,
		"get clusters":                      `^CLUSTER .*\neast +FRESH .*\n$`,
		"get cluster east":                  `^CLUSTER .*\neast +FRESH .*\n$`,
		"get sandboxes":                     sandboxes,
		"get sandboxes -A":                  sandboxes,
		"get claim k":                       `^CLAIM-KEY .*\nk +default +WAITING .*no Pod of the pool is idle\n$`,
	} {
		stdout, stderr, code := run(t.Context(), line)
		if code != 0 || stderr != "" || !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("%s: exit code %d, want %s\n%s%s", line, code, want, stdout, stderr)
		}
	}
}

func (s *scripted) CancelClaim(context.Context, *sandboxv1.CancelClaimRequest) (*sandboxv1.Claim, error) {
	return &sandboxv1.Claim{ClaimKey: "k"}, nil // as servers do: without a state
}

func TestACancelShowsTheStateOfItsClaim(t *testing.T) {
	s := &scripted{claim: func() (*sandboxv1.Claim, error) {
		return &sandboxv1.Claim{ClaimKey: "k", State: sandboxv1.Claim_ENDED}, nil
	}}
	if stdout, stderr, code := serveScripted(t, s).run(t.Context(), "claim k --cancel"); code != 0 || !strings.Contains(stdout, "ENDED") {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
}

func TestClaimShowsItsState(t *testing.T) {
	s := &scripted{claim: func() (*sandboxv1.Claim, error) {
		return &sandboxv1.Claim{ClaimKey: "k", Namespace: "default", State: sandboxv1.Claim_WAITING, ClusterId: "east", Pool: "py-a",
			Waiting: &sandboxv1.Waiting{Position: 2, Claims: 5}, Message: "no Pod of the pool is idle"}, nil
	}}
	stdout, stderr, code := serveScripted(t, s).run(t.Context(), "claim k")
	if code != 0 || !regexp.MustCompile(`k +default +WAITING +east +2 of 5 .*no Pod of the pool is idle`).MatchString(stdout) {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
}

// A filter is refused beside an item. One of the environment is for lists.
func TestFiltersAreForLists(t *testing.T) {
	run := serveScripted(t, &scripted{phases: []sandboxv1.Phase{sandboxv1.Phase_RUNNING}}).run
	for line, want := range map[string]string{
		"envs py --cluster west":                 `--cluster filters a list, want it without "py"`,
		"envs default/py -A --wait=ready":        `--all-namespaces filters a list, want it without "default/py"`,
		"get env py -n default -w --cluster x":   `--cluster filters a list, want it without "py"`,
		"get sandbox id-east -n red":             `--namespace filters a list, want it without "id-east"`,
		"sandboxes id-east --env red/py":         "--env filters a list",
		"sandboxes id-east --cluster west":       "--cluster filters a list",
		"sandboxes id-east --team a":             "--team filters a list",
		"sandboxes id-east --user a":             "--user filters a list",
		"sandboxes id-east --pool a":             "--pool filters a list",
		"sandboxes id-east -l app=web":           "--selector filters a list",
		"sandboxes id-east --metadata a=b":       "--metadata filters a list",
		"sandboxes id-east --phase starting":     "--phase filters a list",
		"sandboxes id-east --ended":              "--ended filters a list",
		"sandboxes id-east --ended-after 2h":     "--ended-after filters a list",
		"sandboxes id-east --ended-before 2h":    "--ended-before filters a list",
		"sandboxes id-east --stop-reason Failed": "--stop-reason filters a list",
	} {
		if stdout, stderr, code := run(t.Context(), line); code != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, want %q", line, code, stdout+stderr, want)
		}
	}
	list, _, err := newRoot().Find([]string{"sandboxes"})
	must.Succeed(t, err)
	list.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(append([]string{"all-namespaces", "sort-by", "wait", "watch"}, sandboxFilters...), f.Name) {
			t.Errorf("--%s is new: is it a filter?", f.Name)
		}
	})
	t.Setenv("ATOLL_CLUSTER", "west")
	for _, line := range []string{"sandboxes id-east -A --sort-by id", "envs py -n default"} {
		if stdout, stderr, code := run(t.Context(), line); code != 0 {
			t.Errorf("%s: exit code %d, %s%s", line, code, stdout, stderr)
		}
	}
}

// Envs are named one way everywhere.
func TestEnvsAreNamedOneWay(t *testing.T) {
	for _, tc := range []struct{ flag, text, namespace, name string }{
		{"", "py", "default", "py"}, {"red", "py", "red", "py"}, {"", "red/py", "red", "py"}, {"red", "red/py", "red", "py"},
		{"blue", "red/py", "", ""}, {"", "a/b/c", "", ""}, {"", "/py", "", ""}, {"", "red/", "", ""},
	} {
		namespace, name, err := (&envRef{tc.flag}).resolve(tc.text)
		if namespace != tc.namespace || name != tc.name || (err != nil) != (tc.name == "") || err != nil && exitCodeOf(err) != exitUsage {
			t.Errorf("-n %q %q: %s/%s, %v", tc.flag, tc.text, namespace, name, err)
		}
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if strings.Contains(cmd.Use, "NAMESPACE/") || cmd.Flags().Lookup("env") != nil && cmd.Name() != "simulate" {
			if f := cmd.Flags().ShorthandLookup("n"); f == nil || f.Name != "namespace" {
				t.Errorf("%s names an Env and has no -n", cmd.CommandPath())
			}
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(newRoot())
}

// Each command's help has an example, which is a command that exists, with its flags.
func TestEveryCommandHasAnExample(t *testing.T) {
	commands := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		commands++
		examples := 0
		for _, example := range strings.Split(cmd.Example, "\n") {
			_, line, ok := strings.Cut(example, "atollctl ")
			if !ok {
				continue
			}
			examples++
			line, _, _ = strings.Cut(line, " |")
			line, _, _ = strings.Cut(line, " >")
			line = strings.NewReplacer("$(date +%F)", "x", "'", "").Replace(line)
			if err := parseExample(strings.Fields(line)); err != nil {
				t.Errorf("%s: example %q: %v", cmd.CommandPath(), line, err)
			}
		}
		if examples == 0 {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(newRoot())
	if commands < 35 {
		t.Errorf("walked %d commands", commands)
	}
}

// parseExample runs the steps before a command's run.
func parseExample(args []string) error {
	command, rest, err := newRoot().Find(args)
	if err != nil {
		return err
	}
	if err := command.ParseFlags(rest); err != nil {
		return err
	}
	if !command.Runnable() {
		return errors.New(command.CommandPath() + " does nothing by itself")
	}
	return command.ValidateArgs(command.Flags().Args())
}

// A command line that is wrong says what is right, and its exit code is that of usage.
func TestCommandsThatAreIncomplete(t *testing.T) {
	server := serveScripted(t, &scripted{})
	if stdout, _, code := server.run(t.Context(), ""); code != 0 || !strings.Contains(stdout, "Available Commands:") {
		t.Errorf("without a command: exit code %d, %q", code, stdout)
	}
	for line, want := range map[string]string{
		"list":                 "there is no atollctl list; did you mean sandboxes?",
		"relase x":             "there is no atollctl relase; did you mean release?",
		"frobnicate":           "there is no atollctl frobnicate; atollctl --help lists what there is",
		"get pods":             "there is no atollctl get pods; there are: claim, clusters, envs, sandboxes",
		"get":                  "atollctl get needs one of: claim, clusters, envs, sandboxes",
		"describe":             "atollctl describe needs one of: claim, cluster, env, sandbox",
		"pki frobnicate":       "there is no atollctl pki frobnicate; there are: ",
		"envs refresh":         "refresh takes 1 argument, and 0 were given; usage: atollctl envs refresh ",
		"keys create ci":       "atollctl keys create needs --namespaces, --all-namespaces or --all: where the scopes hold",
		"get sandbox one more": "sandboxes takes at most 1 argument, and 2 were given; usage: atollctl get sandboxes [ID]",
	} {
		_, stderr, code := server.run(t.Context(), line)
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, want %q", line, code, stderr, want)
		}
	}
}

// An empty table is explained; what programs read is not.
func TestEmptyLists(t *testing.T) {
	server := serveScripted(t, &scripted{phases: []sandboxv1.Phase{sandboxv1.Phase_ENDED}})
	for output, want := range map[string]string{"table": "no sandboxes found\n", "json": ""} {
		if stdout, stderr, code := server.run(t.Context(), "sandboxes -o "+output); code != 0 || stderr != want || stdout == "" {
			t.Errorf("%s: exit code %d, %q, %q", output, code, stdout, stderr)
		}
	}
}

// A command that cannot start is not an internal error.
func TestWhyACommandDoesNotStart(t *testing.T) {
	const said = `Internal error occurred: Internal error occurred: error executing command in container: ` +
		`exec: "nope": executable file not found`
	code, err := exitOf([]byte(`{"status": "Failure", "reason": "InternalError", "message": ` + strconv.Quote(said) + `}`))
	if code != exitNotRun || err == nil || !strings.HasPrefix(err.Error(), "error executing command") {
		t.Errorf("exit code %d, %v", code, err)
	}
}

func TestCompletion(t *testing.T) {
	server := serveScripted(t, &scripted{phases: []sandboxv1.Phase{sandboxv1.Phase_RUNNING}})
	for line, want := range map[string]string{
		"release":                         "id-east\n",
		"exec":                            "id-east\n",
		"describe sandbox":                "id-east\n",
		"describe env":                    "default/py\n",
		"describe env -n default":         "py\n",
		"get envs":                        "default/py\n",
		"create --env":                    "default/py\n",
		"describe cluster":                "east\n",
		"get clusters":                    "east\n",
		"clusters drain":                  "east\n",
		"envs --cluster":                  "east\n",
		"sandboxes --wait":                "starting\nrunning\nstopping\nended\n",
		"create --wait":                   "ready\nassigned\nnone\n",
		"clusters -o":                     "table\nwide\njson\nyaml\nname\n",
		"sandboxes --ended --stop-reason": "Completed\nCanceled\nReleased\nFailed\n",
	} {
		var out bytes.Buffer
		args := append([]string{"__complete", "--server", string(server)}, strings.Fields(line)...)
		if err := command(t.Context(), &out, io.Discard, append(args, "")...); err != nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s: %q, %v, want %q", line, out.String(), err, want)
		}
	}
}

// A command that reaches into a sandbox that has ended says so, and ends as every command that needs a live one.
func TestReachingIntoAnEndedSandbox(t *testing.T) {
	address := serveGone(t, &scripted{phases: []sandboxv1.Phase{sandboxv1.Phase_ENDED}})
	for _, line := range []string{"exec id-east -- ls", "logs id-east"} {
		_, stderr, code := runner(address).run(t.Context(), line)
		if code != exitEnded || !strings.Contains(stderr, "sandbox id-east has ended: Failed: OOMKilled") {
			t.Errorf("%s: exit code %d, %q", line, code, stderr)
		}
	}
}

// A forwarding ends with the first connection that finds its sandbox gone. NOT_FOUND is of the connection alone while the sandbox runs.
func TestAForwardingEndsWithItsSandbox(t *testing.T) {
	address := serveGone(t, &scripted{phases: []sandboxv1.Phase{
		sandboxv1.Phase_RUNNING, sandboxv1.Phase_RUNNING, sandboxv1.Phase_ENDED,
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out, errOut shown
	ended := make(chan error, 1)
	go func() {
		ended <- command(ctx, &out, &errOut, "--server", address, "port-forward", "id-east", ":8000")
	}()
	var local string
	wait.For(t, 20*time.Second, "a port of this machine", func(context.Context) error {
		var found bool
		local, _, found = strings.Cut(out.text(), " is port 8000 of id-east\n")
		return wait.If(found, out.text())
	})
	refused, err := net.Dial("tcp", local)
	must.Succeed(t, err)
	defer refused.Close()
	wait.For(t, 20*time.Second, "the error of the connection", func(context.Context) error {
		told := errOut.text()
		return wait.If(strings.HasPrefix(told, "port 8000: atollctl: ") && strings.HasSuffix(told, "(NOT_FOUND)\n"), told)
	})
	conn, err := net.Dial("tcp", local)
	must.Succeed(t, err)
	defer conn.Close()
	if err := <-ended; err == nil || exitCodeOf(err) != exitEnded || !strings.Contains(err.Error(), "OOMKilled") {
		t.Errorf("it ends with %v", err)
	}
}

// serveGone serves sandboxes none of which can be reached.
func serveGone(t *testing.T, s *scripted) (address string) {
	t.Helper()
	server, err := serve.New(serve.Options{
		Services: serve.Public(s, s, s, s, sandboxv1.UnimplementedTemplatesServer{}),
		Further:  reach.NewHandler(gone{}, logr.Discard()).Match,
		Drain:    100 * time.Millisecond,
	})
	must.Succeed(t, err)
	return testserver.Serve(t, server.Serve)
}

// gone reaches no sandbox.
type gone struct{}

func (gone) Open(context.Context, string, *federationv1.ReachCall) (reach.Tunnel, error) {
	return nil, problem.New(problem.NotFound, "sandbox has ended")
}
