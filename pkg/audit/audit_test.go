// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spf13/pflag"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/telemetry"
)

func TestMain(m *testing.M) {
	// lumberjack never ends the goroutine that compresses.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// memory is a sink that keeps its events, and can be stuck or full.
type memory struct {
	mu     sync.Mutex
	events []Event
	fail   error
	stuck  chan struct{} // nil: not stuck
	began  chan struct{} // gets a value when a write begins, if not nil
}

func (m *memory) Name() string { return "memory" }
func (m *memory) Close() error { return nil }

func (m *memory) Write(lines []Line) error {
	if m.began != nil {
		m.began <- struct{}{}
	}
	if m.stuck != nil {
		<-m.stuck
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	for _, line := range lines {
		m.events = append(m.events, line.Event)
	}
	return nil
}

func (m *memory) setFail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

func newLog(t *testing.T, strict bool, sink Sink) (*Log, *clocktesting.FakeClock, *Metrics) {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry(), "atoll_hub")
	must.Succeed(t, err)
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	return New(Options{Sinks: []Sink{sink}, Strict: strict, Replica: "hub-0", Clock: clk, Metrics: metrics, Log: testlog.New(t)}), clk, metrics
}

func TestCalls(t *testing.T) {
	for method, want := range map[string]Call{
		sandboxv1.Sandboxes_CreateSandbox_FullMethodName: {"create", "sandboxes", true},
		sandboxv1.Sandboxes_TouchSandbox_FullMethodName:  {"touch", "sandboxes", false},
		sandboxv1.Sandboxes_GetSandbox_FullMethodName:    {"get", "sandboxes", false},
		sandboxv1.Clusters_UndrainCluster_FullMethodName: {"undrain", "clusters", true},
		sandboxv1.Hub_BackupHub_FullMethodName:           {"backup", "hub", true},
		sandboxv1.Access_PutAccess_FullMethodName:        {"put", "access", true},
		"/atoll.sandbox.v1.New/ChangeAll":                {"change", "hub", true},
		"/grpc.health.v1.Health/Check":                   {},
	} {
		if call, ok := Of(method); call != want || ok != (want.Verb != "") {
			t.Errorf("%s: %+v, %t", method, call, ok)
		}
	}
}

// No text of a caller breaks a line, hides in a terminal, or makes a line long.
func TestNoTextImitatesALine(t *testing.T) {
	hostile := "a\n{\"schema\":1}\r\x1b[2K\u202eb\u2028\x00\xff" + strings.Repeat("é", 4096)
	e := Event{
		ID: hostile, Verb: hostile, Cluster: hostile, Who: Who{Name: hostile, User: hostile, Team: hostile, Groups: make([]string, 1000)},
		From: From{Address: hostile, UserAgent: hostile}, Result: Result{Reason: hostile, Fields: make([]string, 1000)},
		Object: Object{Name: hostile, Namespace: hostile, Sandbox: hostile, Env: hostile}, Trail: Trail{RequestID: hostile},
		Conversation: &Conversation{Kind: hostile, Container: hostile, Cause: hostile},
	}
	e.Who.Groups[0], e.Fields[0] = hostile, hostile
	line, err := e.line()
	must.Succeed(t, err)
	if n := bytes.Count(line, []byte{'\n'}); n != 1 || len(line) > 6<<10 || !json.Valid(line) {
		t.Errorf("%d line feeds, %d bytes: %s", n, len(line), line)
	}
	for _, bad := range []string{"\x1b", "\\u001b", "\u202e", "\\u202e", "\u2028", "\\u2028", `\n{`, "\\u0000"} {
		if bytes.Contains(line, []byte(bad)) {
			t.Errorf("the line has %q", bad)
		}
	}
}

// A sink that hangs costs calls nothing. What finds no room is counted and told as a gap; no caller takes the places of others.
func TestAStuckSinkHoldsUpNoCall(t *testing.T) {
	sink := &memory{stuck: make(chan struct{}), began: make(chan struct{}, maxWaiting)}
	log, _, metrics := newLog(t, false, sink)
	log.Record(Event{Verb: "first"})
	<-sink.began // the first line is out of the queue
	for range 2 * maxWaiting {
		log.Record(Event{Verb: "flood", Who: Who{Name: "noisy", Kind: Key}})
	}
	log.Record(Event{Verb: "quiet", Who: Who{Name: "quiet", Kind: Key}})
	close(sink.stuck)
	must.Succeed(t, log.Close())
	counts, lost := map[string]int{}, int64(0)
	for _, e := range sink.events {
		counts[e.Verb]++
		if e.Stage == Gap {
			lost += e.Count
		}
	}
	if counts["first"] != 1 || counts["flood"] != maxEach || counts["quiet"] != 1 || lost != 2*maxWaiting-maxEach {
		t.Errorf("%v, and %d were lost", counts, lost)
	}
	if n := testutil.ToFloat64(metrics.drops.WithLabelValues("memory", "full")); int64(n) != lost {
		t.Errorf("counted %v, want %d", n, lost)
	}
}

// I14: refusals of one address are a few lines and a count, and so are those of many addresses.
func TestI14AFloodOfRefusalsIsFolded(t *testing.T) {
	sink := &memory{}
	log, clk, _ := newLog(t, false, sink)
	const flood = 10_000
	for i := range flood {
		log.Fold("10.0.0.1", Event{Verb: "create", From: From{Address: "10.0.0.1"}, Result: Result{Outcome: Refused}})
		log.Fold(fmt.Sprint(i), Event{Verb: "create", From: From{Address: fmt.Sprint(i)}, Result: Result{Outcome: Refused}})
	}
	clk.Step(foldEvery)
	must.Succeed(t, log.Close())
	total, lines := int64(0), len(sink.events)
	for _, e := range sink.events {
		if total++; e.Stage == Summary {
			total += e.Count - 1
		}
	}
	if lines > maxParties*(maxOwn+1)+1 || total != 2*flood {
		t.Errorf("%d lines about %d refusals, want at most %d about %d", lines, total, maxParties*(maxOwn+1)+1, 2*flood)
	}
}

func TestStrict(t *testing.T) {
	sink := &memory{}
	log, _, metrics := newLog(t, true, sink)
	calls := &Calls{
		Log: log, Who: func(context.Context) Who { return Who{Name: "ci", Kind: Key, Proof: "key"} },
		From: func(context.Context) (From, string) { return From{Address: "192.0.2.1"}, "r-1" },
		Hash: func(_, _, key string) string { return fmt.Sprint("hash of ", len(key)) },
	}
	acted := 0
	create := func(ctx context.Context) error {
		info := &grpc.UnaryServerInfo{FullMethod: sandboxv1.Sandboxes_CreateSandbox_FullMethodName}
		_, err := calls.Outer(ctx, &sandboxv1.CreateSandboxRequest{ClaimKey: "secret"}, info, func(ctx context.Context, req any) (any, error) {
			return calls.Inner(ctx, req, info, func(context.Context, any) (any, error) {
				acted++
				return &sandboxv1.Sandbox{Id: "01-east", ClusterId: "east"}, nil
			})
		})
		return err
	}
	must.Succeed(t, create(t.Context()))
	if len(sink.events) != 2 || sink.events[0].Stage != Intent || sink.events[1].Stage != Done || sink.events[0].ID != sink.events[1].ID ||
		sink.events[1].Object.Sandbox != "01-east" || sink.events[1].RequestID != "r-1" {
		t.Errorf("a call with a working sink: %+v", sink.events)
	}
	sink.setFail(errors.New("no space left on device"))
	err := create(t.Context())
	if e := problem.FromError(err); err == nil || e.Reason != problem.Unavailable || acted != 1 {
		t.Errorf("a call that cannot be recorded: %v, and it acted %d times, want 1", err, acted)
	}
	sink.setFail(nil)
	must.Succeed(t, create(t.Context()))
	must.Succeed(t, log.Close())
	if n := testutil.ToFloat64(metrics.drops.WithLabelValues("memory", "failed")); n != 2 {
		t.Errorf("%v lines were lost, want the intent and the outcome of one call", n)
	}
	if gap := sink.events[2]; gap.Stage != Gap || gap.Count != 2 {
		t.Errorf("after a failure comes %+v, want a gap of 2", gap)
	}
}

// A line that a crash has cut spoils no other, and others cannot read the file.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit", "audit.log")
	sink := openFile(t, path, clocktesting.NewFakeClock(time.Unix(0, 0)))
	must.Succeed(t, sink.Write(lineOf(t, "first")))
	must.Succeed(t, sink.Close())
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must.Succeed(t, err)
	_, err = f.WriteString(`{"schema":1,"verb":"cu`)
	must.Succeed(t, errors.Join(err, f.Close()))
	sink = openFile(t, path, clocktesting.NewFakeClock(time.Unix(0, 0)))
	must.Succeed(t, sink.Write(lineOf(t, "second")))
	must.Succeed(t, sink.Close())
	var verbs []string
	data, err := os.ReadFile(path)
	must.Succeed(t, err)
	bad, err := Read(bytes.NewReader(data), func(e Event) error { verbs = append(verbs, e.Verb); return nil })
	if err != nil || bad != 1 || fmt.Sprint(verbs) != "[first second]" {
		t.Errorf("read %v, %d bad lines, %v", verbs, bad, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want one that others cannot read", info.Mode(), err)
	}
}

// A file that is older than FileOptions.Age is compressed, and another one begins.
func TestFileOfAnAge(t *testing.T) {
	dir, clk := t.TempDir(), clocktesting.NewFakeClock(time.Unix(0, 0))
	path := filepath.Join(dir, "audit.log")
	sink := openFile(t, path, clk)
	must.Succeed(t, sink.Write(lineOf(t, "first")))
	clk.Step(2 * time.Hour)
	must.Succeed(t, sink.Write(lineOf(t, "second")))
	must.Succeed(t, sink.Close())
	data, err := os.ReadFile(path)
	must.Succeed(t, err)
	if strings.Contains(string(data), "first") || !strings.Contains(string(data), "second") {
		t.Errorf("after an hour the current file is %s", data)
	}
	// lumberjack compresses in the background, also after Close.
	wait.For(t, time.Minute, "a compressed file beside the current one", func(context.Context) error {
		all, err := filepath.Glob(filepath.Join(dir, "*"))
		compressed, badPattern := filepath.Glob(filepath.Join(dir, "*.gz"))
		return errors.Join(err, badPattern, wait.If(len(all) == 2 && len(compressed) == 1, all))
	})
}

func openFile(t *testing.T, path string, clk clock.PassiveClock) Sink {
	t.Helper()
	sink, err := File(FileOptions{Path: path, Megabytes: 4, Files: 2, Age: time.Hour, Clock: clk})
	must.Succeed(t, err)
	return sink
}

func lineOf(t *testing.T, verb string) []Line {
	t.Helper()
	e := Event{Schema: Schema, Verb: verb}
	text, err := e.line()
	must.Succeed(t, err)
	return []Line{{Event: e, Text: text}}
}

func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"":                              "",
		"--audit=stdout,strict":         "",
		"--audit=none":                  "",
		"--audit=syslog":                `--audit: "syslog" is not valid, want file, file:PATH, stdout, otlp, strict or none`,
		"--audit=file:":                 `--audit: "file:" is not valid`,
		"--audit=strict":                "strict is not valid alone",
		"--audit=none,file":             "none is not valid beside",
		"--audit-file-megabytes=0":      "--audit-file-megabytes: 0 is not valid",
		"--audit-files=0":               "--audit-files: 0 is not valid",
		"--audit-file-age=1s":           "--audit-file-age: 1s is not valid",
		"--audit=file:/x --audit=otlp ": "",
	} {
		var f Flags
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		f.Bind(flags)
		must.Succeed(t, flags.Parse(strings.Fields(args)))
		err := f.Validate()
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	if log, err := (&Flags{To: []string{toNone}}).Open(t.Context(), Environment{Log: logr.Discard()}); log != nil || err != nil {
		t.Errorf("none: %v, %v", log, err)
	}
}

func TestFilter(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	e := Event{
		Time: at, Verb: "create", Who: Who{Name: "ci", Team: "red"}, Cluster: "east", Result: Result{Outcome: OK},
		Object: Object{Resource: "sandboxes/exec", Namespace: "default", Sandbox: "01-east"},
	}
	for _, tc := range []struct {
		filter Filter
		want   bool
	}{
		{Filter{}, true},
		{Filter{Since: at, Until: at.Add(1)}, true},
		{Filter{Since: at.Add(1)}, false},
		{Filter{Until: at}, false},
		{Filter{Who: "c*"}, true},
		{Filter{Who: "red"}, true},
		{Filter{Who: "blue"}, false},
		{Filter{Resource: "sandboxes*"}, true},
		{Filter{Resource: "sandboxes"}, false},
		{Filter{Verb: "create", Namespace: "default", Cluster: "east", Outcome: "ok", Sandbox: "01-*"}, true},
		{Filter{Outcome: "refused"}, false},
	} {
		if got := tc.filter.Matches(&e); got != tc.want {
			t.Errorf("%+v: %t", tc.filter, got)
		}
	}
	if gap := (Event{Time: at, Stage: Gap}); !(Filter{Verb: "create"}).Matches(&gap) {
		t.Error("a gap is left out")
	}
	for _, bad := range []Filter{{Outcome: "fine"}, {Verb: "["}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
}

// logsService is a collector.
type logsService struct {
	collectorv1.UnimplementedLogsServiceServer
	got chan string
	err error
}

func (s *logsService) Export(_ context.Context, r *collectorv1.ExportLogsServiceRequest) (*collectorv1.ExportLogsServiceResponse, error) {
	for _, resource := range r.GetResourceLogs() {
		for _, scope := range resource.GetScopeLogs() {
			for _, record := range scope.GetLogRecords() {
				s.got <- record.GetEventName() + " " + record.GetBody().GetStringValue()
			}
		}
	}
	return &collectorv1.ExportLogsServiceResponse{}, s.err
}

// A collector gets the lines of files. One that refuses them counts as a sink that fails.
func TestCollector(t *testing.T) {
	for _, refuses := range []error{nil, status.Error(codes.InvalidArgument, "no")} {
		service := &logsService{got: make(chan string, 10), err: refuses}
		server := grpc.NewServer()
		collectorv1.RegisterLogsServiceServer(server, service)
		flags := telemetry.Flags{Endpoint: "http://" + testserver.ServeGRPC(t, server)}
		logs, err := flags.OpenLogs(t.Context(), telemetry.Service{Name: "atoll-hub"})
		must.Succeed(t, err)
		log, _, _ := newLog(t, true, Collector(logs))
		if err := log.Before(t.Context(), Event{Verb: "create"}); (err == nil) != (refuses == nil) {
			t.Errorf("a collector that returns %v: %v", refuses, err)
		}
		if got := <-service.got; !strings.HasPrefix(got, `atoll.audit {"schema":1,`) || !strings.Contains(got, `"verb":"create"`) {
			t.Errorf("the collector got %s", got)
		}
		must.Succeed(t, log.Close())
	}
}
