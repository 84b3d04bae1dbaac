// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"navix.sh/atoll/api/envd"
	filesystemv1 "navix.sh/atoll/api/envd/filesystem"
	processv1 "navix.sh/atoll/api/envd/process"
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
	if err != nil {
		s.Fatal(err)
	}
	if token != "" {
		request.Header.Set(TokenHeader, token)
	}
	request.Header.Set("Content-Type", "application/octet-stream")
	response, err := s.server.Client().Do(request)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func call[Q, R any](s *sandbox, path string, q *Q) (*R, error) {
	client := connect.NewClient[Q, R](s.server.Client(), s.server.URL+path, connect.WithProtoJSON())
	request := connect.NewRequest(q)
	request.Header().Set(TokenHeader, testToken)
	response, err := client.CallUnary(s.Context(), request)
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

func must[Q, R any](s *sandbox, path string, q *Q) *R {
	s.Helper()
	r, err := call[Q, R](s, path, q)
	if err != nil {
		s.Fatalf("%s: %v", path, err)
	}
	return r
}

// running is a started process as its caller sees it.
type running struct {
	*sandbox
	stream *connect.ServerStreamForClient[processv1.StartResponse]
	pid    uint32
}

func (s *sandbox) start(q *processv1.StartRequest) *running {
	s.Helper()
	client := connect.NewClient[processv1.StartRequest, processv1.StartResponse](s.server.Client(), s.server.URL+envd.ProcessStart,
		connect.WithProtoJSON())
	request := connect.NewRequest(q)
	request.Header().Set(TokenHeader, testToken)
	stream, err := client.CallServerStream(s.Context(), request)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = stream.Close() })
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
		client := connect.NewClient[processv1.StartRequest, processv1.StartResponse](s.server.Client(), s.server.URL+envd.ProcessStart)
		request := connect.NewRequest(&processv1.StartRequest{Process: row.config})
		request.Header().Set(TokenHeader, testToken)
		stream, err := client.CallServerStream(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if stream.Receive() || connect.CodeOf(stream.Err()) != row.want {
			t.Errorf("%v: %v, want %v", row.config, stream.Err(), row.want)
		}
		_ = stream.Close()
	}
}

func TestInputSignalsAndLists(t *testing.T) {
	s := opened(t)
	cat := s.shell("cat")
	must[processv1.SendInputRequest, processv1.SendInputResponse](s, envd.ProcessSendInput, &processv1.SendInputRequest{
		Process: cat.selector(), Input: &processv1.ProcessInput{Input: &processv1.ProcessInput_Stdin{Stdin: []byte("typed")}},
	})
	if list := must[processv1.ListRequest, processv1.ListResponse](s, envd.ProcessList, nil); len(list.GetProcesses()) != 1 {
		t.Errorf("processes %v, want one", list)
	}
	must[processv1.CloseStdinRequest, processv1.CloseStdinResponse](s, envd.ProcessCloseStdin,
		&processv1.CloseStdinRequest{Process: cat.selector()})
	if out, _, end := cat.finish(); out != "typed" || end.GetExitCode() != 0 {
		t.Errorf("cat printed %q and ended with %v", out, end)
	}
	// The whole group ends.
	group := s.shell("sleep 1000 & echo ready; wait")
	group.stream.Receive()
	must[processv1.SendSignalRequest, processv1.SendSignalResponse](s, envd.ProcessSendSignal,
		&processv1.SendSignalRequest{Process: group.selector(), Signal: processv1.Signal_SIGNAL_SIGKILL})
	if _, _, end := group.finish(); end.GetExited() || end.GetStatus() != "signal: killed" {
		t.Errorf("end %v, want by SIGKILL", end)
	}
	if _, err := call[processv1.SendSignalRequest, processv1.SendSignalResponse](s, envd.ProcessSendSignal,
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
	client := connect.NewClient[processv1.ConnectRequest, processv1.ConnectResponse](s.server.Client(), s.server.URL+envd.ProcessConnect)
	request := connect.NewRequest(&processv1.ConnectRequest{Process: first.selector()})
	request.Header().Set(TokenHeader, testToken)
	again, err := client.CallServerStream(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	again.Receive() // start
	must[processv1.SendInputRequest, processv1.SendInputResponse](s, envd.ProcessSendInput, &processv1.SendInputRequest{
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

func TestATimeoutEndsTheProcess(t *testing.T) {
	s := opened(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	client := connect.NewClient[processv1.StartRequest, processv1.StartResponse](s.server.Client(), s.server.URL+envd.ProcessStart)
	request := connect.NewRequest(&processv1.StartRequest{Process: &processv1.ProcessConfig{Cmd: "sleep", Args: []string{"1000"}}})
	request.Header().Set(TokenHeader, testToken)
	stream, err := client.CallServerStream(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	for stream.Receive() {
	}
	_ = stream.Close()
	for ended := false; !ended; { // ends with the test's time
		ended = len(must[processv1.ListRequest, processv1.ListResponse](s, envd.ProcessList, nil).GetProcesses()) == 0
	}
}

func TestATerminalHasItsSize(t *testing.T) {
	s := opened(t)
	p := s.start(&processv1.StartRequest{
		Process: &processv1.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "stty size; read line; stty size; tty >/dev/null && echo tty"}},
		Pty:     &processv1.PTY{Size: &processv1.PTY_Size{Cols: 100, Rows: 30}},
	})
	p.stream.Receive()
	must[processv1.UpdateRequest, processv1.UpdateResponse](s, envd.ProcessUpdate, &processv1.UpdateRequest{
		Process: p.selector(), Pty: &processv1.PTY{Size: &processv1.PTY_Size{Cols: 120, Rows: 40}},
	})
	must[processv1.SendInputRequest, processv1.SendInputResponse](s, envd.ProcessSendInput, &processv1.SendInputRequest{
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
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	for _, name := range []string{"one", "deep/two"} {
		part, err := w.CreateFormFile("file", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = part.Write([]byte(name))
	}
	_ = w.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.server.URL+"/files", &form)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", w.FormDataContentType())
	request.Header.Set(TokenHeader, testToken)
	response, err := s.server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if text, err := os.ReadFile(filepath.Join(dir, "deep", "two")); err != nil || string(text) != "deep/two" {
		t.Errorf("a form's second file: %q, %v", text, err)
	}
}

func TestFolders(t *testing.T) {
	s := opened(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must[filesystemv1.MakeDirRequest, filesystemv1.MakeDirResponse](s, envd.FilesystemMakeDir, &filesystemv1.MakeDirRequest{Path: at("a/b")})
	if _, err := call[filesystemv1.MakeDirRequest, filesystemv1.MakeDirResponse](s, envd.FilesystemMakeDir,
		&filesystemv1.MakeDirRequest{Path: at("a")}); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("a folder twice: %v", err)
	}
	if err := os.WriteFile(at("a/b/f"), []byte("12345"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("b/f", at("a/link")); err != nil {
		t.Fatal(err)
	}
	moved := must[filesystemv1.MoveRequest, filesystemv1.MoveResponse](s, envd.FilesystemMove,
		&filesystemv1.MoveRequest{Source: at("a"), Destination: at("c/d")}).GetEntry()
	if moved.GetPath() != at("c/d") || moved.GetType() != filesystemv1.FileType_FILE_TYPE_DIRECTORY {
		t.Errorf("moved: %v", moved)
	}
	names := func(depth uint32) (out []string) {
		for _, e := range must[filesystemv1.ListDirRequest, filesystemv1.ListDirResponse](s, envd.FilesystemListDir,
			&filesystemv1.ListDirRequest{Path: at("c/d"), Depth: depth}).GetEntries() {
			out = append(out, e.GetName())
		}
		return out
	}
	if one, two := strings.Join(names(1), " "), strings.Join(names(2), " "); one != "b link" || two != "b f link" {
		t.Errorf("listed %q and %q", one, two)
	}
	link := must[filesystemv1.StatRequest, filesystemv1.StatResponse](s, envd.FilesystemStat,
		&filesystemv1.StatRequest{Path: at("c/d/link")}).GetEntry()
	file := must[filesystemv1.StatRequest, filesystemv1.StatResponse](s, envd.FilesystemStat,
		&filesystemv1.StatRequest{Path: at("c/d/b/f")}).GetEntry()
	if link.GetSymlinkTarget() != "b/f" || file.GetSize() != 5 || file.GetMode() != 0o640 {
		t.Errorf("link %v, file %v", link, file)
	}
	must[filesystemv1.RemoveRequest, filesystemv1.RemoveResponse](s, envd.FilesystemRemove, &filesystemv1.RemoveRequest{Path: at("c")})
	if _, err := call[filesystemv1.StatRequest, filesystemv1.StatResponse](s, envd.FilesystemStat,
		&filesystemv1.StatRequest{Path: at("c")}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("what was removed: %v", err)
	}
}

func TestWatches(t *testing.T) {
	s := opened(t)
	dir := t.TempDir()
	client := connect.NewClient[filesystemv1.WatchDirRequest, filesystemv1.WatchDirResponse](s.server.Client(),
		s.server.URL+envd.FilesystemWatchDir)
	request := connect.NewRequest(&filesystemv1.WatchDirRequest{Path: dir, Recursive: true})
	request.Header().Set(TokenHeader, testToken)
	stream, err := client.CallServerStream(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	stream.Receive() // start
	fetched := must[filesystemv1.CreateWatcherRequest, filesystemv1.CreateWatcherResponse](s, envd.FilesystemCreateWatcher,
		&filesystemv1.CreateWatcherRequest{Path: dir}).GetWatcherId()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(filepath.Join(dir, "sub", "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	next("sub/f", filesystemv1.EventType_EVENT_TYPE_WRITE)
	for len(must[filesystemv1.GetWatcherEventsRequest, filesystemv1.GetWatcherEventsResponse](s, envd.FilesystemGetWatcherEvents,
		&filesystemv1.GetWatcherEventsRequest{WatcherId: fetched}).GetEvents()) == 0 { // ends with the test's time
	}
	must[filesystemv1.RemoveWatcherRequest, filesystemv1.RemoveWatcherResponse](s, envd.FilesystemRemoveWatcher,
		&filesystemv1.RemoveWatcherRequest{WatcherId: fetched})
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
