// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"

	"navix.sh/atoll/api/envd"
	filesystemv1 "navix.sh/atoll/api/envd/filesystem"
	processv1 "navix.sh/atoll/api/envd/process"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testToken = "a-token"

// sandbox is a daemon that serves at loopback.
type sandbox struct {
	*testing.T
	server *httptest.Server
	daemon *Daemon
}

func newSandbox(t *testing.T) *sandbox {
	d := New(Options{Version: "test"})
	s := &sandbox{t, httptest.NewServer(d), d}
	t.Cleanup(func() {
		d.Close()
		s.server.CloseClientConnections()
		s.server.Close()
	})
	return s
}

func opened(t *testing.T) *sandbox {
	s := newSandbox(t)
	if status, text := s.http(http.MethodPost, "/init", "",
		`{"accessToken":"`+testToken+`","envVars":{"GREETING":"hello"}}`); status != http.StatusNoContent {
		t.Fatalf("/init: %d %s", status, text)
	}
	return s
}

func (s *sandbox) http(method, path, token, body string) (int, string) {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), method, s.server.URL+path, strings.NewReader(body))
	must.Succeed(s, err)
	if token != "" {
		request.Header.Set(TokenHeader, token)
	}
	request.Header.Set("Content-Type", "application/octet-stream")
	response, err := s.server.Client().Do(request)
	must.Succeed(s, err)
	defer response.Body.Close()
	return response.StatusCode, string(must.Read(s, response.Body))
}

func call[R, Q any](s *sandbox, path string, q *Q) (*R, error) {
	client := connect.NewClient[Q, R](s.server.Client(), s.server.URL+path, connect.WithProtoJSON())
	request := connect.NewRequest(q)
	request.Header().Set(TokenHeader, testToken)
	response, err := client.CallUnary(s.Context(), request)
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

func mustCall[R, Q any](s *sandbox, path string, q *Q) *R {
	s.Helper()
	r, err := call[R](s, path, q)
	if err != nil {
		s.Fatalf("%s: %v", path, err)
	}
	return r
}

// openStream opens a stream of responses, which is closed when the test ends.
func openStream[R, Q any](
	ctx context.Context, s *sandbox, path string, q *Q, options ...connect.ClientOption,
) *connect.ServerStreamForClient[R] {
	s.Helper()
	client := connect.NewClient[Q, R](s.server.Client(), s.server.URL+path, options...)
	request := connect.NewRequest(q)
	request.Header().Set(TokenHeader, testToken)
	stream, err := client.CallServerStream(ctx, request)
	must.Succeed(s, err)
	s.Cleanup(func() { _ = stream.Close() })
	return stream
}

// running is a started process as its caller sees it.
type running struct {
	*sandbox
	stream *connect.ServerStreamForClient[processv1.StartResponse]
	pid    uint32
}

func (s *sandbox) start(q *processv1.StartRequest) *running {
	s.Helper()
	stream := openStream[processv1.StartResponse](s.Context(), s, envd.ProcessStart, q, connect.WithProtoJSON())
	if !stream.Receive() {
		s.Fatalf("no start event: %v", stream.Err())
	}
	return &running{s, stream, stream.Msg().GetEvent().GetStart().GetPid()}
}

func (s *sandbox) shell(line string) *running {
	s.Helper()
	return s.start(&processv1.StartRequest{Process: &processv1.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", line}}})
}

// finish returns all output and the end.
func (r *running) finish() (out, errOut string, end *processv1.ProcessEvent_EndEvent) {
	r.Helper()
	for r.stream.Receive() {
		e := r.stream.Msg().GetEvent()
		out += string(e.GetData().GetStdout()) + string(e.GetData().GetPty())
		errOut += string(e.GetData().GetStderr())
		if e.GetEnd() != nil {
			return out, errOut, e.GetEnd()
		}
	}
	r.Fatalf("the stream ended without an end event: %v", r.stream.Err())
	return "", "", nil
}

func (r *running) selector() *processv1.ProcessSelector {
	return &processv1.ProcessSelector{Selector: &processv1.ProcessSelector_Pid{Pid: r.pid}}
}

func TestTheFirstInitSetsTheToken(t *testing.T) {
	s := newSandbox(t)
	for _, row := range []struct {
		method, path, token, body string
		want                      int
	}{
		{http.MethodGet, "/health", "", "", http.StatusNoContent},
		{http.MethodGet, "/metrics", "", "", http.StatusUnauthorized},
		{http.MethodPost, "/init", "", `{}`, http.StatusBadRequest},
		{http.MethodPost, "/init", "", `{"accessToken":"t","envVars":{"A=B":"x"}}`, http.StatusBadRequest},
		{http.MethodPost, "/init", "", `{"accessToken":"t"}`, http.StatusNoContent},
		{http.MethodPost, "/init", "", `{"accessToken":"other"}`, http.StatusUnauthorized},
		{http.MethodPost, "/init", "t", `{"accessToken":"other"}`, http.StatusConflict},
		{http.MethodPost, "/init", "t", `{"envVars":{"A":"x"}}`, http.StatusNoContent},
		{http.MethodGet, "/metrics", "wrong", "", http.StatusUnauthorized},
		{http.MethodGet, "/metrics", "t", "", http.StatusOK},
		{http.MethodGet, "/files?path=/etc/hostname", "", "", http.StatusUnauthorized},
	} {
		if got, text := s.http(row.method, row.path, row.token, row.body); got != row.want {
			t.Errorf("%s %s %s with token %q: %d %s, want %d", row.method, row.path, row.body, row.token, got, text, row.want)
		}
	}
}

func TestACommandRunsWithItsEnvironment(t *testing.T) {
	s := opened(t)
	t.Setenv("PATH", os.Getenv("PATH")+":/of/the/image")
	out, errOut, end := s.shell(`echo "$GREETING $PATH"; echo bad >&2; exit 3`).finish()
	if !strings.HasPrefix(out, "hello ") || !strings.Contains(out, "/of/the/image") || errOut != "bad\n" || end.GetExitCode() != 3 ||
		!end.GetExited() {
		t.Errorf("out %q, err %q, end %v", out, errOut, end)
	}
}

func TestWhatCannotStartSaysWhy(t *testing.T) {
	s := opened(t)
	absent := "/no/such/folder"
	for _, row := range []struct {
		config *processv1.ProcessConfig
		want   connect.Code
	}{
		{&processv1.ProcessConfig{}, connect.CodeInvalidArgument},
		{&processv1.ProcessConfig{Cmd: "no-such-program"}, connect.CodeNotFound},
		{&processv1.ProcessConfig{Cmd: "/no/such/program"}, connect.CodeNotFound},
		{&processv1.ProcessConfig{Cmd: "true", Cwd: &absent}, connect.CodeInvalidArgument},
		{&processv1.ProcessConfig{Cmd: "true", Envs: map[string]string{"": "x"}}, connect.CodeInvalidArgument},
	} {
		stream := openStream[processv1.StartResponse](t.Context(), s, envd.ProcessStart, &processv1.StartRequest{Process: row.config})
		if stream.Receive() || connect.CodeOf(stream.Err()) != row.want {
			t.Errorf("%v: %v, want %v", row.config, stream.Err(), row.want)
		}
	}
}

func TestInputSignalsAndLists(t *testing.T) {
	s := opened(t)
	cat := s.shell("cat")
	mustCall[processv1.SendInputResponse](s, envd.ProcessSendInput, &processv1.SendInputRequest{
		Process: cat.selector(), Input: &processv1.ProcessInput{Input: &processv1.ProcessInput_Stdin{Stdin: []byte("typed")}},
	})
	if list := mustCall[processv1.ListResponse](s, envd.ProcessList, &processv1.ListRequest{}); len(list.GetProcesses()) != 1 {
		t.Errorf("processes %v, want one", list)
	}
	mustCall[processv1.CloseStdinResponse](s, envd.ProcessCloseStdin,
		&processv1.CloseStdinRequest{Process: cat.selector()})
	if out, _, end := cat.finish(); out != "typed" || end.GetExitCode() != 0 {
		t.Errorf("cat printed %q and ended with %v", out, end)
	}
	// The whole group ends.
	group := s.shell("sleep 1000 & echo ready; wait")
	group.stream.Receive()
	mustCall[processv1.SendSignalResponse](s, envd.ProcessSendSignal,
		&processv1.SendSignalRequest{Process: group.selector(), Signal: processv1.Signal_SIGNAL_SIGKILL})
	if _, _, end := group.finish(); end.GetExited() || end.GetStatus() != "signal: killed" {
		t.Errorf("end %v, want by SIGKILL", end)
	}
	if _, err := call[processv1.SendSignalResponse](s, envd.ProcessSendSignal,
		&processv1.SendSignalRequest{Process: group.selector(),
			Signal: processv1.Signal_SIGNAL_SIGTERM}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a signal after the end: %v, want not found", err)
	}
}

func TestAReaderThatReturnsGetsWhatItMissed(t *testing.T) {
	s := opened(t)
	first := s.shell("echo one; read line; echo two")
	first.stream.Receive()
	_ = first.stream.Close()
	again := openStream[processv1.ConnectResponse](t.Context(), s, envd.ProcessConnect,
		&processv1.ConnectRequest{Process: first.selector()})
	again.Receive() // start
	mustCall[processv1.SendInputResponse](s, envd.ProcessSendInput, &processv1.SendInputRequest{
		Process: first.selector(), Input: &processv1.ProcessInput{Input: &processv1.ProcessInput_Stdin{Stdin: []byte("\n")}},
	})
	var out string
	for again.Receive() {
		out += string(again.Msg().GetEvent().GetData().GetStdout())
	}
	if out != "one\ntwo\n" {
		t.Errorf("read %q, want both lines", out)
	}
}

func TestI10OutputIsBoundedAndLosesNothingThatIsAwaited(t *testing.T) {
	o := newOutput()
	piece := bytes.Repeat([]byte("x"), pieceBytes)
	for range 4 * keepBytes / pieceBytes {
		o.write(t.Context(), stdout, piece)
	}
	if o.bytes > keepBytes {
		t.Errorf("%d bytes are kept, want at most %d", o.bytes, keepBytes)
	}
	reader := o.read()
	const pieces = 3 * keepBytes / pieceBytes
	go func() {
		for range pieces {
			o.write(context.Background(), stderr, piece)
		}
		o.close(&processv1.ProcessEvent{})
	}()
	got := 0
	for {
		event, last, wait := reader.take()
		if last {
			break
		}
		if wait != nil {
			<-wait
			continue
		}
		if event.GetData().GetStderr() != nil {
			got++
		}
	}
	if got != pieces {
		t.Errorf("a connected reader got %d pieces, want all %d", got, pieces)
	}
}

// A reader that is slow gets what a process printed just before its end.
func TestTheEndOfOutputWaitsForItsReaders(t *testing.T) {
	const printed = 300_000 // more than is kept, and a piece
	s := opened(t)
	p, reader := s.printing(printed)
	wait.For(t, time.Minute, "the process to end", func(context.Context) error {
		return wait.If(errors.Is(syscall.Kill(int(p.info.GetPid()), 0), syscall.ESRCH), "it runs")
	})
	<-time.After(2 * drainTimeout)
	if got := readAll(reader); got != printed {
		t.Errorf("%d bytes of %d were read", got, printed)
	}
}

// What a process prints before its caller reads is kept, and the process waits.
func TestTheBeginningOfOutputWaitsForItsFirstReader(t *testing.T) {
	const printed = 3 * keepBytes
	s := opened(t)
	p, reader := s.printing(printed)
	wait.For(t, time.Minute, "the process to wait for its reader", func(context.Context) error {
		p.output.mu.Lock()
		defer p.output.mu.Unlock()
		return wait.If(p.output.waiting == 1, p.output.total)
	})
	if got := readAll(reader); got != printed {
		t.Errorf("%d bytes of %d were read", got, printed)
	}
}

// printing is a process that prints so many bytes, and its first reader.
func (s *sandbox) printing(count int) (*process, *reader) {
	s.Helper()
	p, first, err := s.daemon.run(own(), &processv1.StartRequest{Process: &processv1.ProcessConfig{
		Cmd: "/bin/sh", Args: []string{"-c", fmt.Sprintf("head -c %d /dev/zero", count)},
	}}, 0)
	must.Succeed(s, err)
	s.Cleanup(first.close)
	return p, first
}

// readAll returns how many bytes of stdout a reader gets until the end of its process.
func readAll(r *reader) (count int) {
	for {
		event, last, changed := r.take()
		if last {
			return count
		}
		if changed != nil {
			<-changed
			continue
		}
		count += len(event.GetData().GetStdout())
	}
}

// What children print after the end of their process keeps no process.
func TestTheEndOfOutputDoesNotWaitForChildren(t *testing.T) {
	s := opened(t)
	p := s.shell("while :; do echo x; done & exit 3")
	defer func() { _ = syscall.Kill(-int(p.pid), syscall.SIGKILL) }()
	if _, _, end := p.finish(); end.GetExitCode() != 3 {
		t.Errorf("ended with %v", end)
	}
}

func TestATimeoutEndsTheProcess(t *testing.T) {
	s := opened(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	stream := openStream[processv1.StartResponse](ctx, s, envd.ProcessStart,
		&processv1.StartRequest{Process: &processv1.ProcessConfig{Cmd: "sleep", Args: []string{"1000"}}})
	for stream.Receive() {
	}
	_ = stream.Close()
	for ended := false; !ended; { // ends with the test's time
		ended = len(mustCall[processv1.ListResponse](s, envd.ProcessList, &processv1.ListRequest{}).GetProcesses()) == 0
	}
}

func TestATerminalHasItsSize(t *testing.T) {
	s := opened(t)
	p := s.start(&processv1.StartRequest{
		Process: &processv1.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "stty size; read line; stty size; tty >/dev/null && echo tty"}},
		Pty:     &processv1.PTY{Size: &processv1.PTY_Size{Cols: 100, Rows: 30}},
	})
	p.stream.Receive()
	mustCall[processv1.UpdateResponse](s, envd.ProcessUpdate, &processv1.UpdateRequest{
		Process: p.selector(), Pty: &processv1.PTY{Size: &processv1.PTY_Size{Cols: 120, Rows: 40}},
	})
	mustCall[processv1.SendInputResponse](s, envd.ProcessSendInput, &processv1.SendInputRequest{
		Process: p.selector(), Input: &processv1.ProcessInput{Input: &processv1.ProcessInput_Pty{Pty: []byte("\n")}},
	})
	if out, _, _ := p.finish(); !strings.Contains(out, "40 120") || !strings.Contains(out, "tty") {
		t.Errorf("printed %q", out)
	}
}

func TestFiles(t *testing.T) {
	s := opened(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "a b.txt")
	at := "/files?path=" + url.QueryEscape(path)
	if status, text := s.http(http.MethodPost, at, testToken, "content"); status != http.StatusOK || !strings.Contains(text, `"type":"file"`) {
		t.Fatalf("upload: %d %s", status, text)
	}
	if status, text := s.http(http.MethodGet, at, testToken, ""); status != http.StatusOK || text != "content" {
		t.Errorf("download: %d %q", status, text)
	}
	sum := sha256.Sum256([]byte(path + ":read::" + testToken))
	signed := at + "&signature=" + url.QueryEscape("v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
	if status, text := s.http(http.MethodGet, signed, "", ""); status != http.StatusOK || text != "content" {
		t.Errorf("signed download: %d %q", status, text)
	}
	if status, _ := s.http(http.MethodPost, signed, "", "x"); status != http.StatusUnauthorized {
		t.Errorf("an upload with the signature of a download: %d, want 401", status)
	}
	late := at + "&signature_expiration=" + strconv.FormatInt(time.Now().Add(-time.Minute).Unix(), 10) + "&signature=v1_x"
	if status, _ := s.http(http.MethodGet, late, "", ""); status != http.StatusUnauthorized {
		t.Errorf("an expired signature: %d, want 401", status)
	}
	for query, want := range map[string]int{
		"": http.StatusBadRequest, "path=" + url.QueryEscape(dir): http.StatusBadRequest, "path=/no/such": http.StatusNotFound,
		"path=/x&username=no-account": http.StatusUnauthorized,
	} {
		if status, text := s.http(http.MethodGet, "/files?"+query, testToken, ""); status != want {
			t.Errorf("download %q: %d %s, want %d", query, status, text, want)
		}
	}
	if status, text := s.postForm(dir, "one", "deep/two"); status != http.StatusOK {
		t.Errorf("upload of a form: %d %s", status, text)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "deep", "two")); err != nil || string(text) != "deep/two" {
		t.Errorf("a form's second file: %q, %v", text, err)
	}
}

func TestFolders(t *testing.T) {
	s := opened(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	mustCall[filesystemv1.MakeDirResponse](s, envd.FilesystemMakeDir, &filesystemv1.MakeDirRequest{Path: at("a/b")})
	if _, err := call[filesystemv1.MakeDirResponse](s, envd.FilesystemMakeDir,
		&filesystemv1.MakeDirRequest{Path: at("a")}); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("a folder twice: %v", err)
	}
	must.Succeed(t, os.WriteFile(at("a/b/f"), []byte("12345"), 0o640))
	must.Succeed(t, os.Symlink("b/f", at("a/link")))
	moved := mustCall[filesystemv1.MoveResponse](s, envd.FilesystemMove,
		&filesystemv1.MoveRequest{Source: at("a"), Destination: at("c/d")}).GetEntry()
	if moved.GetPath() != at("c/d") || moved.GetType() != filesystemv1.FileType_FILE_TYPE_DIRECTORY {
		t.Errorf("moved: %v", moved)
	}
	names := func(depth uint32) (out []string) {
		for _, e := range mustCall[filesystemv1.ListDirResponse](s, envd.FilesystemListDir,
			&filesystemv1.ListDirRequest{Path: at("c/d"), Depth: depth}).GetEntries() {
			out = append(out, e.GetName())
		}
		return out
	}
	if one, two := strings.Join(names(1), " "), strings.Join(names(2), " "); one != "b link" || two != "b f link" {
		t.Errorf("listed %q and %q", one, two)
	}
	link := mustCall[filesystemv1.StatResponse](s, envd.FilesystemStat,
		&filesystemv1.StatRequest{Path: at("c/d/link")}).GetEntry()
	file := mustCall[filesystemv1.StatResponse](s, envd.FilesystemStat,
		&filesystemv1.StatRequest{Path: at("c/d/b/f")}).GetEntry()
	if link.GetSymlinkTarget() != "b/f" || file.GetSize() != 5 || file.GetMode() != 0o640 {
		t.Errorf("link %v, file %v", link, file)
	}
	must.Succeed(t, os.WriteFile(at("c/d/\xe9"), nil, 0o600))
	if got := strings.Join(names(1), " "); got != "b link \uFFFD" {
		t.Errorf("with a name that is not UTF-8: %q", got)
	}
	for range 2 { // what is not there is removed as well
		mustCall[filesystemv1.RemoveResponse](s, envd.FilesystemRemove, &filesystemv1.RemoveRequest{Path: at("c")})
	}
	if _, err := call[filesystemv1.StatResponse](s, envd.FilesystemStat,
		&filesystemv1.StatRequest{Path: at("c")}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("what was removed: %v", err)
	}
}

func TestWatches(t *testing.T) {
	s := opened(t)
	dir := t.TempDir()
	stream := openStream[filesystemv1.WatchDirResponse](t.Context(), s, envd.FilesystemWatchDir,
		&filesystemv1.WatchDirRequest{Path: dir, Recursive: true})
	stream.Receive() // start
	fetched := mustCall[filesystemv1.CreateWatcherResponse](s, envd.FilesystemCreateWatcher,
		&filesystemv1.CreateWatcherRequest{Path: dir}).GetWatcherId()
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	next := func(name string, kind filesystemv1.EventType) {
		t.Helper()
		for stream.Receive() {
			if e := stream.Msg().GetFilesystem(); e.GetName() == name && e.GetType() == kind {
				return
			}
		}
		t.Fatalf("no event %v of %q: %v", kind, name, stream.Err())
	}
	next("sub", filesystemv1.EventType_EVENT_TYPE_CREATE)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "sub", "f"), []byte("x"), 0o600))
	next("sub/f", filesystemv1.EventType_EVENT_TYPE_WRITE)
	for len(mustCall[filesystemv1.GetWatcherEventsResponse](s, envd.FilesystemGetWatcherEvents,
		&filesystemv1.GetWatcherEventsRequest{WatcherId: fetched}).GetEvents()) == 0 { // ends with the test's time
	}
	mustCall[filesystemv1.RemoveWatcherResponse](s, envd.FilesystemRemoveWatcher,
		&filesystemv1.RemoveWatcherRequest{WatcherId: fetched})
}

func TestAWatchOfALinkIsOneOfItsFolder(t *testing.T) {
	s := opened(t)
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	must.Succeed(t, os.Symlink(dir, link))
	stream := openStream[filesystemv1.WatchDirResponse](t.Context(), s, envd.FilesystemWatchDir,
		&filesystemv1.WatchDirRequest{Path: link, Recursive: true})
	stream.Receive() // start
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "f\xe9"), nil, 0o600))
	if !stream.Receive() || stream.Msg().GetFilesystem().GetName() != "f\uFFFD" {
		t.Errorf("%v, %v", stream.Msg(), stream.Err())
	}
}

// A build makes and removes more folders than one watch has at a time.
func TestRemovedFoldersAreNotWatched(t *testing.T) {
	dir := t.TempDir()
	w, err := newWatch(dir, true, false)
	must.Succeed(t, err)
	defer w.Close()
	sub := filepath.Join(dir, "sub")
	for range 3 {
		must.Succeed(t, os.Mkdir(sub, 0o755))
		must.Succeed(t, w.add(sub, nil))
		must.Succeed(t, os.Remove(sub))
		for e := range w.Events {
			if e.Name == sub && e.Has(fsnotify.Remove) {
				break
			}
		}
	}
	if got := w.WatchList(); len(got) != 1 {
		t.Errorf("watched are %q", got)
	}
}

// Version 1 of E2B's SDK names the account "user" in every call; an image need not have it. Any other account has to be there.
func TestTheAccountThatClientsName(t *testing.T) {
	d := &Daemon{}
	if got, err := d.account(clientsUser); err != nil || got.name == "" && got.home == "" {
		t.Errorf("%s: %+v, %v", clientsUser, got, err)
	}
	if got, err := d.account("no-such-account"); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("an account that is not there: %+v, %v", got, err)
	}
}

func TestAHeaderNamesTheUserOfAFileIfTheImageLacksTheDefaultOne(t *testing.T) {
	s := opened(t)
	if status, text := s.http(http.MethodPost, "/init", testToken, `{"defaultUser":"no-such-account"}`); status != http.StatusNoContent {
		t.Fatalf("/init: %d %s", status, text)
	}
	request := httptest.NewRequest(http.MethodGet, "/files", http.NoBody)
	if _, _, err := s.daemon.target(request, "f"); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("the default user: %v", err)
	}
	request.Header.Set(userHeader, clientsUser)
	if _, _, err := s.daemon.target(request, "f"); err != nil {
		t.Errorf("the user that the header names: %v", err)
	}
}
