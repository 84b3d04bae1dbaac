// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

const createMethod = sandboxv1.Sandboxes_CreateSandbox_FullMethodName

// patience is how long a server may take for an immediate action.
const patience = 20 * time.Second

// admitKnown admits callers with a token, under its name.
func admitKnown(_ context.Context, _ string, authorization []string) (string, error) {
	if len(authorization) != 1 {
		return "", problem.New(problem.Unauthenticated, "who are you?")
	}
	return authorization[0], nil
}

func limits(change func(*Limits)) func(*Options) {
	return func(o *Options) { change(&o.Limits) }
}

func secured(o *Options) { o.Admit = admitKnown }

// talk opens a connection and sends raw bytes.
func talk(t *testing.T, address, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err = io.WriteString(conn, text)
	must.Succeed(t, err)
	return conn
}

// heard is the response on a connection, and whether the server has closed it after that.
func heard(t *testing.T, conn net.Conn) (code int, body string, closed bool) {
	t.Helper()
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil) //nolint:bodyclose // the test closes the connection
	if err != nil {
		t.Fatalf("no response: %v", err)
	}
	text := must.Read(t, resp.Body)
	return resp.StatusCode, string(text), resp.Close
}

// begin opens a stream and sends only the header.
func begin(t *testing.T, conn *grpc.ClientConn, method string, header ...string) grpc.ClientStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), header...), patience)
	t.Cleanup(cancel)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method)
	must.Succeed(t, err)
	return stream
}

// I14: callers without credentials are refused before anything but the header is read.
func TestI14CredentialsComeBeforeTheBody(t *testing.T) {
	address := start(t, secured)
	for _, path := range []string{"/v1/sandboxes", "/v1/extra/7", "/v1/nothing"} {
		conn := talk(t, address, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{")
		if code, body, closed := heard(t, conn); code != 401 || !closed {
			t.Errorf("%s: %d %s, closed %t", path, code, body, closed)
		}
	}
	conn := dial(t, address, insecure.NewCredentials())
	err := begin(t, conn, createMethod).RecvMsg(&sandboxv1.Sandbox{})
	if problem.FromError(err).Reason != problem.Unauthenticated {
		t.Errorf("gRPC: %v", err)
	}
	got, err := sandboxv1.NewSandboxesClient(conn).CreateSandbox(metadata.AppendToOutgoingContext(t.Context(), "authorization", "a"),
		&sandboxv1.CreateSandboxRequest{Env: "demo"})
	if err != nil || got.GetEnv() != "demo" {
		t.Errorf("with credentials: %v %v", got, err)
	}
	for path, want := range map[string]int{"/healthz": 200, "/openapi.json": 200, "/v1/sandboxes": 401} {
		// One response per connection; because a caller that reads none could have more of them wait than one.
		if code, body, closed := heard(t, talk(t, address, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")); code != want || !closed {
			t.Errorf("%s: %d %s, closed %t", path, code, body, closed)
		}
	}
}

func TestI14RequestsAreBounded(t *testing.T) {
	address := start(t)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(client.CloseIdleConnections)
	for name, c := range map[string]struct {
		body   string
		header []string
		want   string // in the response; empty: 200
	}{
		"small":       {`{"env":"demo","metadata":{"a":"{[,\"[{,"}}`, []string{"Content-Type", "application/json; charset=utf-8"}, ""},
		"many bytes":  {`{"env":"demo"` + strings.Repeat(" ", 256<<10) + "}", nil, "at most 262144 bytes"},
		"many values": {`{"env":"demo","postStartHooks":[{}` + strings.Repeat(",{}", maxValues/2) + "]}", nil, "at most 10000 values"},
		"deep": {`{"env":"demo","postStartHooks":[{"a":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + "}]}",
			nil, "at most 64 levels"},
		"deep and unclosed": {strings.Repeat(`{"a":[`, 40_000), nil, "at most 64 levels"},
		"compressed":        {"\x1f\x8b\x08", []string{"Content-Encoding", "gzip"}, "requests are not compressed"},
		"a form":            {"env=demo", []string{"Content-Type", "application/x-www-form-urlencoded"}, "application/json"},
		"text":              {`{"env":"demo"}`, []string{"Content-Type", "text/plain"}, "application/json"},
	} {
		code, body, _ := rest(t, client, "POST", "http://"+address+"/v1/sandboxes", c.body, c.header...)
		if c.want == "" && code != 200 || c.want != "" && (code != 400 || !strings.Contains(body, c.want) || !strings.Contains(body, `"field"`)) {
			t.Errorf("%s: %d %.300s, want %q", name, code, body, c.want)
		}
	}
	// A body without a length is read no further than it may be.
	chunk := "10000\r\n" + strings.Repeat(" ", 1<<16) + "\r\n"
	conn := talk(t, address, "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"+strings.Repeat(chunk, 5))
	if code, body, _ := heard(t, conn); code != 400 || !strings.Contains(body, "at most 262144 bytes") {
		t.Errorf("in chunks: %d %s", code, body)
	}

	calls := sandboxv1.NewSandboxesClient(dial(t, address, insecure.NewCredentials()))
	nested := structpb.NewNullValue()
	for range maxNesting {
		nested = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{nested}})
	}
	hooks := make([]*structpb.Struct, maxElements+1)
	for i := range hooks {
		hooks[i] = &structpb.Struct{}
	}
	for name, c := range map[string]struct {
		request *sandboxv1.CreateSandboxRequest
		options []grpc.CallOption
		want    string
	}{
		"small":       {&sandboxv1.CreateSandboxRequest{Metadata: map[string]string{"a": "b"}, PostStartHooks: hooks[:100]}, nil, ""},
		"many bytes":  {&sandboxv1.CreateSandboxRequest{Image: strings.Repeat("x", 256<<10)}, nil, "larger than max"},
		"many values": {&sandboxv1.CreateSandboxRequest{PostStartHooks: hooks}, nil, "at most 20000 values"},
		"many names":  {&sandboxv1.CreateSandboxRequest{Clusters: make([]string, maxElements+1)}, nil, "at most 20000 values"},
		"deep": {&sandboxv1.CreateSandboxRequest{PostStartHooks: []*structpb.Struct{{Fields: map[string]*structpb.Value{"a": nested}}}},
			nil, "at most 192 levels"},
		"compressed": {&sandboxv1.CreateSandboxRequest{}, []grpc.CallOption{grpc.UseCompressor(gzip.Name)}, "requests are not compressed"},
	} {
		c.request.Env = "demo"
		_, err := calls.CreateSandbox(t.Context(), c.request, c.options...)
		if e := problem.FromError(err); c.want == "" && err != nil || c.want != "" && (e == nil || !strings.Contains(e.Message, c.want)) {
			t.Errorf("gRPC, %s: %v, want %q", name, err, c.want)
		}
	}
	for name, header := range map[string]string{
		"many bytes": "A: " + strings.Repeat("x", 64<<10) + "\r\n",
		"many lines": strings.Repeat("A:\r\n", maxLines),
	} {
		if code, body, closed := heard(t, talk(t, address, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\n")); code != 431 ||
			!closed {
			t.Errorf("a header of %s: %d %s, closed %t", name, code, body, closed)
		}
	}
	// Bodies of many lines, and many requests of one connection, are not headers of many lines.
	conn = talk(t, address, strings.Repeat("POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: "+
		"1014\r\n\r\n"+strings.Repeat("\n", 1000)+`{"env":"demo"}`[:14], 3))
	in := bufio.NewReader(conn)
	for range 3 {
		resp, err := http.ReadResponse(in, nil) //nolint:bodyclose // the test closes the connection
		must.Succeed(t, err)
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
			t.Errorf("a body of many lines: %d %v", resp.StatusCode, err)
		}
	}
	_, err := calls.CreateSandbox(metadata.AppendToOutgoingContext(t.Context(), "a", strings.Repeat("x", 64<<10)),
		&sandboxv1.CreateSandboxRequest{Env: "demo"})
	if err == nil {
		t.Error("gRPC: a header of 64 KiB was taken")
	}
}

// checkProto gets any input, and finishes it in one pass.
func TestCheckProtoTakesAnything(t *testing.T) {
	request := (&sandboxv1.CreateSandboxRequest{}).ProtoReflect().Descriptor()
	long := protowire.AppendBytes(protowire.AppendTag(nil, 17, protowire.BytesType), make([]byte, 10))
	for name, c := range map[string]struct {
		wire []byte
		ok   bool
	}{
		"nothing": {nil, true}, "unknown field": {protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1), true},
		"cut off": {long[:5], false}, "a group": {protowire.AppendTag(nil, 1000, protowire.StartGroupType), false},
		"no tag": {[]byte{0xff}, false},
	} {
		if err := checkProto(c.wire, request); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestI14SlowCallersAreEnded(t *testing.T) {
	const short = 300 * time.Millisecond
	address := start(t, limits(func(l *Limits) { l.HeaderTimeout, l.BodyTimeout, l.IdleTimeout = short, short, short }))
	for name, text := range map[string]string{
		"nothing": "", "half a preface": "PR", "half a header": "GET / HTTP/1.1\r\nHost:",
		"after a request": "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		if _, err := io.Copy(io.Discard, talk(t, address, text)); err != nil {
			t.Errorf("who says %s is not hung up on: %v", name, err)
		}
	}
	conn := talk(t, address, "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
	if code, body, closed := heard(t, conn); code != 504 || !closed {
		t.Errorf("half a body: %d %s, closed %t", code, body, closed)
	}
	calls := dial(t, address, insecure.NewCredentials())
	if err := begin(t, calls, createMethod).RecvMsg(&sandboxv1.Sandbox{}); status.Code(err) != codes.Canceled {
		t.Errorf("gRPC without a body: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for state := calls.GetState(); state != connectivity.Idle; state = calls.GetState() {
		if !calls.WaitForStateChange(ctx, state) {
			t.Fatal("a gRPC connection without calls is kept")
		}
	}
	// A conversation that has ended does not wait for the rest of its request.
	if code, body, _ := heard(t, talk(t, address,
		"POST /v1/extra/unread HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n1")); code != 200 {
		t.Errorf("a conversation whose request was not read: %d %s", code, body)
	}
	// A conversation is no slow body.
	slow := talk(t, address, "POST /v1/extra/7 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n1")
	<-time.After(2 * short)
	_, err := io.WriteString(slow, "2")
	must.Succeed(t, err)
	if code, body, _ := heard(t, slow); code != 200 || body != "extra 7 2 <nil>" {
		t.Errorf("a conversation with a pause: %d %s", code, body)
	}
}

// A caller that does not take the response is ended as well: the only connection is free again.
func TestI14ResponsesAreTakenInTime(t *testing.T) {
	address := start(t, limits(func(l *Limits) { l.BodyTimeout, l.PerAddress = 300*time.Millisecond, 1 }))
	deaf := talk(t, address, "")
	go func() {
		for {
			if _, err := io.WriteString(deaf, "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				return
			}
		}
	}()
	wait.For(t, patience, "the connection of a caller that takes no response to be free", func(context.Context) error {
		conn, err := net.Dial("tcp", address)
		must.Succeed(t, err)
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		got, _ := io.ReadAll(conn)
		return wait.If(strings.HasPrefix(string(got), "HTTP/1.1 200"), string(got))
	})
}

func TestI14ConnectionsAreBounded(t *testing.T) {
	address := start(t, limits(func(l *Limits) { l.Connections, l.PerAddress, l.Streams = 3, 2, 2 }))
	ask := func(from string) (net.Conn, bool) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := dialer.DialContext(t.Context(), "tcp", address)
		must.Succeed(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		_, err = http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // the test closes the connection
		return conn, err == nil
	}
	first, _ := ask("127.0.0.1")
	for i, c := range []struct {
		from string
		ok   bool
	}{{"127.0.0.1", true}, {"127.0.0.1", false}, {"127.0.0.2", true}, {"127.0.0.3", false}} {
		if _, ok := ask(c.from); ok != c.ok {
			t.Errorf("connection %d, from %s: %t", i, c.from, ok)
		}
	}
	_ = first.Close()
	wait.For(t, patience, "the place of a connection that has ended to be given away", func(context.Context) error {
		conn, ok := ask("127.0.0.3")
		_ = conn.Close()
		return wait.If(ok, "no response")
	})
}

// A connection counts before its TLS handshake, which a stranger may never begin.
func TestI14ConnectionsCountBeforeTheirHandshake(t *testing.T) {
	cert, _ := selfSigned(t)
	address := start(t, limits(func(l *Limits) { l.PerAddress = 1 }), func(o *Options) {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	})
	talk(t, address, "")
	over := talk(t, address, "")
	_ = over.SetReadDeadline(time.Now().Add(DefaultLimits().HeaderTimeout / 2)) // after which a connection without a handshake ends as well
	if _, err := over.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one connection more than may be, beside one without a handshake: %v", err)
	}
}

func TestI14StreamsAreBounded(t *testing.T) {
	address := start(t, limits(func(l *Limits) { l.Streams = 2 }))
	conn := dial(t, address, insecure.NewCredentials())
	calls := sandboxv1.NewSandboxesClient(conn)
	if _, err := calls.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{Env: "demo"}); err != nil {
		t.Fatal(err) // the server's settings are known now
	}
	for range 2 {
		begin(t, conn, createMethod)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, createMethod); !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("a third stream of two: %v", err)
	}
}

// Metrics and health are bounded as well.
func TestI14PlainIsBounded(t *testing.T) {
	address := testserver.Serve(t, func(ctx context.Context, lis net.Listener) error { return Plain(ctx, lis, http.NotFoundHandler()) })
	large := talk(t, address, "GET / HTTP/1.1\r\nHost: localhost\r\nA: "+strings.Repeat("x", 2*plainHeader)+"\r\n\r\n")
	if code, _, closed := heard(t, large); code != 431 || !closed {
		t.Errorf("a large header: %d, closed %t", code, closed)
	}
	_ = large.Close()
	for range plainPerAddress {
		talk(t, address, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
	}
	// Connections are accepted one after the other.
	wait.For(t, patience, "one connection more than may be to be closed", func(context.Context) error {
		over := talk(t, address, "")
		_ = over.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err := over.Read(make([]byte, 1))
		return wait.If(err != nil && !errors.Is(err, os.ErrDeadlineExceeded), err)
	})
}

// One caller's calls in flight take no other's place, however many connections it has.
func TestI14EachCallerHasItsCalls(t *testing.T) {
	address := start(t, secured, limits(func(l *Limits) { l.Calls = 3 }))
	conn := dial(t, address, insecure.NewCredentials()) // one for all tries, because connections are bounded as well
	call := func(caller string) error {
		_, err := sandboxv1.NewSandboxesClient(conn).
			CreateSandbox(metadata.AppendToOutgoingContext(t.Context(), "authorization", caller), &sandboxv1.CreateSandboxRequest{Env: "demo"})
		return err
	}
	for range 3 {
		begin(t, dial(t, address, insecure.NewCredentials()), createMethod, "authorization", "greedy")
	}
	for until := time.Now().Add(patience); ; { // the streams arrive one after the other
		if err := call("greedy"); status.Code(err) == codes.ResourceExhausted {
			break
		} else if err != nil || time.Now().After(until) {
			t.Fatalf("one call more than a caller may have: %v", err)
		}
		begin(t, conn, createMethod, "authorization", "greedy") // in the place of one that met a call of this loop
	}
	if err := call("other"); err != nil {
		t.Errorf("another caller: %v", err)
	}
}

// Health checks need no credentials, and leave room for others.
func TestI14HealthChecksAreFew(t *testing.T) {
	address := start(t, secured)
	conn := dial(t, address, insecure.NewCredentials())
	held := newOpenIntake().slots
	for range held {
		begin(t, conn, healthv1.Health_Check_FullMethodName)
	}
	for until := time.Now().Add(patience); ; { // the streams arrive one after the other
		_, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
		if status.Code(err) == codes.ResourceExhausted {
			break
		}
		if err != nil || time.Now().After(until) {
			t.Fatalf("a health check beside %d that do not arrive: %v", held, err)
		}
		begin(t, conn, healthv1.Health_Check_FullMethodName) // in the place of one that met a check of this loop
	}
	if _, err := sandboxv1.NewSandboxesClient(conn).CreateSandbox(metadata.AppendToOutgoingContext(t.Context(), "authorization", "a"),
		&sandboxv1.CreateSandboxRequest{Env: "demo"}); err != nil {
		t.Errorf("a call with credentials: %v", err)
	}
}

func TestI14IntakeIsShared(t *testing.T) {
	in := &intake{slots: 2, waiting: 4, least: 1, inAll: 12, callers: map[string]*share{}}
	var left []func()
	fill := func(caller string) (joined int) {
		for {
			s, ok := in.join(caller)
			if !ok {
				return joined
			}
			joined++
			left = append(left, func() { in.part(caller, s) })
		}
	}
	for i, want := range []int{6, 6, 4, 3, 2, 2, 1, 1, 1} { // of one caller beside so many others
		if got := fill(fmt.Sprint("caller ", i)); got != want {
			t.Errorf("caller %d has %d bodies under way, want %d", i, got, want)
		}
	}
	for _, leave := range left {
		leave()
	}
	if len(in.callers) != 0 {
		t.Errorf("%d callers are remembered (I10)", len(in.callers))
	}
}

// A caller's requests that do not arrive delay only its own.
func TestI14EachCallerHasAShare(t *testing.T) {
	address := start(t, secured)
	conn := dial(t, address, insecure.NewCredentials())
	for range newIntake().slots {
		begin(t, conn, createMethod, "authorization", "greedy")
	}
	post := "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\nContent-Length: 14\r\n\r\n" + `{"env":"demo"}`
	wait.For(t, patience, "a caller to have no more than its share received at one time", func(context.Context) error {
		held := talk(t, address, fmt.Sprintf(post, "greedy"))
		_ = held.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		_, err := http.ReadResponse(bufio.NewReader(held), nil) //nolint:bodyclose // the test closes the connection
		return wait.If(err != nil, "a response")
	})
	if code, body, _ := heard(t, talk(t, address, fmt.Sprintf(post, "other"))); code != 200 {
		t.Errorf("another caller: %d %s", code, body)
	}
}

// A connection that takes no responses is not read; because gRPC would keep them, however many.
func TestI14WhoDoesNotReadIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, deaf := net.Pipe()
		conn := newPaced(server, time.Minute, newUntaken(1, time.Minute))
		var responded atomic.Bool
		go func() {
			_, err := conn.Write([]byte("response"))
			responded.Store(err == nil)
		}()
		synctest.Wait()
		go func() { _, _ = deaf.Write([]byte("request")) }()
		read := make(chan error, 1)
		go func() {
			_, err := conn.Read(make([]byte, 100))
			read <- err
		}()
		synctest.Wait()
		select {
		case err := <-read:
			t.Errorf("read while a response is not taken: %v", err)
		default:
		}
		_, err := io.ReadFull(deaf, make([]byte, len("response")))
		must.Succeed(t, err)
		if err := <-read; err != nil || !responded.Load() {
			t.Errorf("after the response was taken: %v", err)
		}
		began := time.Now()
		if _, err := conn.Write([]byte("response")); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("a response that is never taken: %v after %s", err, time.Since(began))
		}
	})
}

// Calls that arrive faster than they are checked block their connections.
func TestI14CallsAreLookedAtAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(DefaultLimits(), admitKnown)
		ended, end := context.WithCancel(t.Context())
		var last context.Context
		for i := range maxUnseen {
			parent := t.Context()
			if i == 0 {
				parent = ended // of an unknown method
			}
			last, _ = g.tap(parent, nil)
		}
		next := func(free func()) {
			t.Helper()
			arrived := make(chan struct{})
			go func() {
				defer close(arrived)
				_, _ = g.tap(t.Context(), nil)
			}()
			synctest.Wait()
			select {
			case <-arrived:
				t.Error("a call was taken in though there is no place")
			default:
			}
			free()
			<-arrived
		}
		next(end)
		next(func() { _, _ = g.check(last, createMethod) })
		if _, err := g.check(last, createMethod); err == nil || len(g.unseen) != maxUnseen {
			t.Errorf("%d places are taken, want %d: a call gives its place away once", len(g.unseen), maxUnseen)
		}
	})
}
