// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/problem"
)

func TestClusterFormats(t *testing.T) {
	list := &sandboxv1.ListClustersResponse{Clusters: []*sandboxv1.Cluster{
		{Id: "east", State: sandboxv1.ClusterState_FRESH, Idle: 3, Running: 1, Desired: 4, Envs: 1,
			LastSeen: durationpb.New(1200 * time.Millisecond), Members: 1, Incarnation: 7, Replica: "hub-1", Version: "v1"},
		{Id: "west", State: sandboxv1.ClusterState_UNREACHABLE, LastSeen: durationpb.New(3 * time.Minute), Message: "silent",
			Hosted: &sandboxv1.HostedWorker{Host: "mgmt-0", Latency: durationpb.New(1230 * time.Microsecond)}},
	}}
	for output, want := range map[string]string{
		"table": `CLUSTER  STATE        IDLE  RUNNING  DESIRED  WAITING  ENVS  SEEN
east     FRESH        3     1        4        0        1     1s
west     UNREACHABLE  0     0        0        0        0     3m
`,
		"wide": "CLUSTER  STATE        IDLE  RUNNING  DESIRED  WAITING  ENVS  SEEN  " +
			"POOLS  INCARNATION  VERSION  REPLICA  SERVES  WORKER                        MESSAGE\n" +
			"east     FRESH        3     1        4        0        1     1s    " +
			"1      7            v1       hub-1    all     inside                        -\n" +
			"west     UNREACHABLE  0     0        0        0        0     3m    " +
			"0      0            -        -        all     hosted by mgmt-0, 1.2ms away  silent\n",
		"name": "east\nwest\n",
		"yaml": `clusters:
- desired: 4
  envs: 1
  id: east
  idle: 3
  incarnation: "7"
  lastSeen: 1.200s
  members: 1
  replica: hub-1
  running: 1
  state: FRESH
  version: v1
- hosted:
    host: mgmt-0
    latency: 0.001230s
  id: west
  lastSeen: 180s
  message: silent
  state: UNREACHABLE
`,
	} {
		var out bytes.Buffer
		if err := clusterView.list(&out, output, list.GetClusters(), list); err != nil {
			t.Fatalf("%s: %v", output, err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", output, diff)
		}
	}
	err := clusterView.list(&bytes.Buffer{}, "xml", list.GetClusters(), list)
	if err == nil || !strings.Contains(err.Error(), `"xml"`) || !strings.Contains(err.Error(), "yaml") {
		t.Errorf("an unknown format: %v", err)
	}
}

// What a cluster says is one line, without control characters of a terminal.
func TestWhatAClusterSaysIsOneLine(t *testing.T) {
	const said, want = "two\nlines\tand \x1b[2Jno more", "two lines and [2Jno more"
	for name, show := range map[string]func(io.Writer) error{
		"clusters": func(w io.Writer) error { return clusterView.one(w, "wide", &sandboxv1.Cluster{Message: said}) },
		"explain":  func(w io.Writer) error { return candidateView.one(w, "wide", &sandboxv1.Candidate{Message: said}) },
		"explain's first line": func(w io.Writer) error {
			_, err := io.WriteString(w, headline(&sandboxv1.Decision{Message: said}))
			return err
		},
		"refresh": func(w io.Writer) error { return refreshView.one(w, "table", &sandboxv1.RefreshedMember{Message: said}) },
		"refresh's changes": func(w io.Writer) error {
			return showRefresh(w, "table", &sandboxv1.RefreshEnvResponse{Members: []*sandboxv1.RefreshedMember{
				{Outcome: sandboxv1.RefreshedMember_REFRESHED, Changes: []string{said}},
			}})
		},
		"diff's pools": func(w io.Writer) error {
			showPlan(w, manifest.Ref{}, &sandboxv1.PlanEnvResponse{Clusters: []*sandboxv1.PlannedCluster{
				{Action: sandboxv1.PlannedCluster_CHANGE, Pools: []*sandboxv1.PlannedPool{{Message: said}}},
			}})
			return nil
		},
	} {
		var out bytes.Buffer
		must.Succeed(t, show(&out))
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: %q, want %q in it", name, out.String(), want)
		}
	}
}

// A sandbox of a cluster that does not respond is told from one that is as it is now.
func TestSandboxesThatAreAsLastKnown(t *testing.T) {
	items := []*sandboxv1.Sandbox{
		{Id: "a-east", Phase: sandboxv1.Phase_RUNNING, ClusterId: "east", Namespace: "default", Env: "py", PodIp: "10.0.0.7"},
		{Id: "b-west", Phase: sandboxv1.Phase_RUNNING, ClusterId: "west", Namespace: "default", Env: "py", PodIp: "10.1.0.7",
			StaleAge: durationpb.New(3 * time.Minute)},
	}
	const want = `SANDBOX  PHASE    CLUSTER  ENV         POD-IP    AGE  ENDED  STALE
a-east   RUNNING  east     default/py  10.0.0.7  -    -      -
b-west   RUNNING  west     default/py  10.1.0.7  -    -      3m
`
	var out bytes.Buffer
	must.Succeed(t, sandboxView.list(&out, "table", items, &sandboxv1.ListSandboxesResponse{Sandboxes: items}))
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEnvMembers(t *testing.T) {
	env := &sandboxv1.Env{Namespace: "default", Name: "py", Clusters: []*sandboxv1.EnvCluster{
		{ClusterId: "east", State: sandboxv1.ClusterState_FRESH, Age: durationpb.New(time.Second), Members: []*sandboxv1.EnvMember{
			{Name: "py-a", State: "Active", ReadyIdle: 2, Idle: 3, Running: 1, Desired: 4, Priority: 5},
		}},
	}}
	const members = `CLUSTER  POOL  STATE   READY  IDLE  RUNNING  DESIRED  WAITING  PRIORITY  CLUSTER-STATE  AGE
east     py-a  Active  2      3     1        4        0        5         FRESH          1s
`
	show := func(want string) {
		t.Helper()
		var out bytes.Buffer
		must.Succeed(t, showEnv(&out, "table", env))
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	show(members)
	env.MissingClusters, env.ClustersWithoutEnv = []string{"mars", "venus"}, []string{"west"}
	show(members + "\nmars is not registered\n\nvenus is not registered\n\nwest has no such Env\n")
	var out bytes.Buffer
	must.Succeed(t, envView.list(&out, "table", []*sandboxv1.Env{env}, env))
	if want := "mars is not registered; venus is not registered; west has no such Env\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("the list is\n%s", out.String())
	}
}

func TestExplainHeadline(t *testing.T) {
	for want, d := range map[string]*sandboxv1.Decision{
		"east/py-a: FreshIdle (3 ready)": {ClusterId: "east", Pool: "py-a", Reason: "FreshIdle", Message: "3 ready"},
		"nowhere: NoCandidate":           {Reason: "NoCandidate"},
	} {
		if got := headline(d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestErrorsTellWhatToDo(t *testing.T) {
	var out bytes.Buffer
	p := problem.InvalidField("env", "", "an Env's name").WithRetryAfter(2 * time.Second)
	p.ClaimKey = "build-17"
	reportError(&out, p.GRPCStatus().Err())
	for _, want := range []string{"INVALID", `env: ""`, "an Env's name", "2s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", out.String(), want)
		}
	}
	out.Reset()
	reportError(&out, errors.New("--phase is odd"))
	if got := out.String(); got != "atollctl: --phase is odd\n" {
		t.Errorf("a local error: %q", got)
	}
}

func TestFlagsBecomeARequest(t *testing.T) {
	f := &claimFlags{wait: "assigned", startupTimeout: 1500 * time.Millisecond}
	r, err := f.message("team-a/py")
	if err != nil || r.GetNamespace() != "team-a" || r.GetEnv() != "py" ||
		r.GetWait() != sandboxv1.CreateSandboxRequest_ASSIGNED || r.GetStartupTimeout().AsDuration() != 1500*time.Millisecond {
		t.Errorf("got %v, %v", r, err)
	}
	f.wait = "soon"
	if _, err := f.message("py"); err == nil || !strings.Contains(err.Error(), "ready, assigned or none") {
		t.Errorf("a wrong --wait: %v", err)
	}
}

func TestTokensNeedTLSExceptOnLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"localhost:8080": true, "127.0.0.1:1": true, "[::1]:8080": true, "hub.example:8080": false, "10.0.0.1:80": false,
	} {
		if got := loopback(address); got != want {
			t.Errorf("loopback(%q) = %v", address, got)
		}
	}
	a := &app{server: "hub.example:8080", token: "x"}
	creds, err := a.credentials()
	if err != nil || creds.Info().SecurityProtocol != "tls" {
		t.Errorf("a remote server is spoken to in %v, %v", creds, err)
	}
}

func TestAges(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0ms", 90 * time.Millisecond: "90ms", 119 * time.Second: "119s", 5 * time.Minute: "5m", 7 * time.Hour: "7h",
		72 * time.Hour: "3d",
	} {
		if got := short(d); got != want {
			t.Errorf("short(%s) = %s, want %s", d, got, want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		args []string
		err  error
		want exitCode
	}{
		{err: problem.New(problem.Invalid, "x"), want: 2},
		{err: problem.New(problem.NotFound, "x"), want: 3},
		{err: problem.New(problem.QueueFull, "x"), want: 4},
		{err: problem.New(problem.Deadline, "x"), want: 4},
		{err: problem.New(problem.ClaimKeyConflict, "x"), want: 5},
		{err: problem.New(problem.OutcomeUnknown, "x"), want: 6},
		{err: problem.New(problem.Forbidden, "x"), want: 7},
		{err: problem.New(problem.Misconfigured, "x"), want: 8},
		{err: fmt.Errorf("touching a: %w", usable(&sandboxv1.Sandbox{Phase: sandboxv1.Phase_ENDED})), want: 9},
		{err: errors.New("x"), want: 1},
		{args: []string{"verify"}, want: 2},
		{args: []string{"create", "--env", "py", "-o", "xml"}, want: 2},
		{args: []string{"create", "--env", "py", "--wait", "soon"}, want: 2},
		{args: []string{"create"}, want: 2},
		{args: []string{"sandboxes", "--phase", "asleep"}, want: 2},
		{args: []string{"top", "--interval", "1ms"}, want: 2},
		{args: []string{"no-such-command"}, want: 2},
		{args: []string{"clusters", "--no-such-flag"}, want: 2},
		{args: []string{"release"}, want: 2},
		{args: []string{"create", "--idle-timeout", "soon"}, want: 2},
	} {
		err := tt.err
		if err == nil {
			err = command(t.Context(), io.Discard, io.Discard, tt.args...)
		}
		if got := exitCodeOf(err); got != tt.want {
			t.Errorf("%v (%v) ends with %d, want %d", tt.args, err, got, tt.want)
		}
	}
}

func TestExpires(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		at   *timestamppb.Timestamp
		want string
	}{
		{nil, "never"},
		{timestamppb.New(now.Add(-time.Second)), "expired"},
		{timestamppb.New(now.Add(90*24*time.Hour - time.Second)), "in 90d"},
		{timestamppb.New(now.Add(40 * time.Second)), "in 40s"},
	} {
		if got := expires(now, tt.at); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.at.AsTime().Sub(now), got, tt.want)
		}
	}
}

// A change shows what it changed, also where that is a column of wide tables alone.
func TestShowing(t *testing.T) {
	cluster := &sandboxv1.Cluster{Id: "east", Scope: &sandboxv1.ClusterScope{Namespaces: []string{"red"}}}
	var out strings.Builder
	must.Succeed(t, clusterView.showing("SERVES").one(&out, "table", cluster))
	got := out.String()
	if !strings.Contains(got, "SERVES") || !strings.Contains(got, "namespaces=red") || strings.Contains(got, "INCARNATION") {
		t.Errorf("%s", got)
	}
	out.Reset()
	must.Succeed(t, clusterView.one(&out, "table", cluster))
	if strings.Contains(out.String(), "SERVES") {
		t.Errorf("%s", out.String())
	}
}
