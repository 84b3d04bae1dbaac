// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protowire"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

const createMethod = sandboxv1.Sandboxes_CreateSandbox_FullMethodName

// much is a body that the attacker sends at once.
const much = 4<<20 - 1<<10

// anyoneRows attack the public API without a key.
func anyoneRows() []row {
	return []row{
		{name: "strangers-bodies", role: anyone, told: []string{"401 UNAUTHENTICATED"}, never: []string{"[25].*"},
			attack: loud(func(*attacker) string {
				return post("", `{"env":"honest","postStartHooks":[{}`+strings.Repeat(",{}", much/3)+"]}")
			})},
		{name: "gzip-calls", role: anyone, told: []string{"UNAUTHENTICATED|Unauthenticated"}, never: []string{"OK"}, attack: gzipCalls("")},
		{name: "gzip-bodies", role: anyone, told: []string{"401.*"}, never: []string{"[25].*"}, attack: loud(func(*attacker) string {
			return post("", zipped(bytes.Repeat([]byte("{},"), much/3)), "Content-Encoding: gzip")
		})},
		{name: "endless-chunks", role: anyone, told: []string{"401.*"}, never: []string{"[25].*"}, attack: loud(func(*attacker) string {
			return "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
				strings.Repeat("10000\r\n"+strings.Repeat(" ", 1<<16)+"\r\n", 64)
		})},
		{name: "deep-json", role: anyone, told: []string{"401.*"}, never: []string{"[25].*"}, attack: loud(func(*attacker) string {
			return post("", strings.Repeat(`{"postStartHooks":[`, much/40))
		})},
		{name: "guessed-keys", role: anyone, told: []string{"401.*"}, never: []string{"[25].*"}, attack: guessedKeys},
		{name: "slow-bodies", role: anyone, told: []string{"401.*|closed"}, never: []string{"[25].*"}, attack: drip(func(int) (string, string) {
			return "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n", "{"
		})},
		{name: "slow-headers", role: anyone, told: []string{"closed|408.*"}, never: []string{"2.*"}, attack: drip(func(i int) (string, string) {
			return "GET / HTTP/1.1\r\nHost: localhost\r\n", fmt.Sprintf("A%d: b\r\n", i)
		})},
		{name: "header-lines", role: anyone, told: []string{"431"}, never: []string{"2.*"}, attack: loud(func(*attacker) string {
			var header strings.Builder
			for i := range 4 << 10 {
				fmt.Fprintf(&header, "%x:\r\n", i)
			}
			return "GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + header.String() + "\r\n"
		})},
		{name: "header-bytes", role: anyone, told: []string{"431"}, never: []string{"2.*"}, attack: loud(func(*attacker) string {
			return "GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + strings.Repeat("x", 1<<20) + "\r\n\r\n"
		})},
		{name: "silent-connections", role: anyone, told: []string{"closed"}, attack: silent(func(a *attacker) string { return a.API }, "")},
		{name: "many-addresses", role: anyone, told: []string{"closed"}, attack: manyAddresses},
		{name: "connection-churn", role: anyone, told: []string{"connected"}, attack: churn(func(a *attacker) string { return a.API })},
		{name: "wrong-protocols", role: anyone, told: []string{"closed|400.*"}, never: []string{"2.*"}, attack: wrongProtocols},
		{name: "request-smuggling", role: anyone, told: []string{"400.*", "401.*"}, never: []string{"then [25].*"}, attack: smuggling},
		{name: "unread-responses", role: anyone, told: []string{"closed"},
			attack: unread("GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")},
		{name: "health-calls", role: anyone, told: []string{"ResourceExhausted|RATE_LIMITED|Canceled|DeadlineExceeded"}, attack: healthCalls},
		{name: "methods-without-key", role: anyone, told: []string{"UNAUTHENTICATED|Unauthenticated"}, never: []string{"OK"},
			attack: methodsWithoutKey},
		{name: "metrics-port", role: anyone, told: []string{"closed"}, attack: silent(func(a *attacker) string { return a.Metrics },
			"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")},
		{name: "cross-site-posts", role: anyone, told: []string{"403.*"}, never: []string{"2.*"}, attack: crossSite},
		{name: "rebound-hosts", role: anyone, told: []string{"403.*|421.*|400.*"}, never: []string{"2.*"}, attack: reboundHosts},
	}
}

// loud says one text again and again on few connections.
func loud(text func(a *attacker) string) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		said := text(a)
		swarm(ctx, 8, func(int) { a.say(ctx, a.API, said) })
		return nil
	}
}

// zipped is text, compressed.
func zipped(text []byte) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(text)
	_ = w.Close()
	return out.String()
}

// raw sends messages as they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (raw) Unmarshal(_ []byte, _ any) error { return nil }
func (raw) Name() string                    { return "proto" }

// squeezed is what gzip makes of every message: a small one that becomes much.
type squeezed struct{ text string }

func (squeezed) Name() string { return "gzip" }
func (s squeezed) Compress(w io.Writer) (io.WriteCloser, error) {
	return closing(func() error { _, err := io.WriteString(w, s.text); return err }), nil
}
func (squeezed) Decompress(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }

type closing func() error

func (closing) Write(p []byte) (int, error) { return len(p), nil }
func (c closing) Close() error              { return c() }

// bombs makes UseCompressor("gzip") send 3 KiB that become 4 MiB of empty hooks.
func bombs() {
	hook := protowire.AppendBytes(protowire.AppendTag(nil, 17, protowire.BytesType), nil)
	encoding.RegisterCompressor(squeezed{zipped(bytes.Repeat(hook, much/len(hook)))})
}

// gzipCalls makes calls with small messages that become much, with a key or, if that is empty, without one.
func gzipCalls(key string) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		bombs()
		conn, err := a.grpc(a.Tokens[key])
		if err != nil {
			return err
		}
		defer conn.Close()
		swarm(ctx, 12, func(int) {
			a.attempts.Add(1)
			if err := conn.Invoke(ctx, createMethod, []byte("{}"), nil, grpc.ForceCodec(raw{}), grpc.UseCompressor("gzip")); ctx.Err() == nil {
				a.tellError(err)
			}
		})
		return nil
	}
}

func guessedKeys(ctx context.Context, a *attacker) error {
	by := a.client()
	swarm(ctx, 16, func(i int) {
		a.ask(ctx, by, "GET", a.url("/v1/sandboxes"), fmt.Sprintf("atoll_%d%d", i, time.Now().UnixNano()), "")
	})
	return nil
}

// drip opens many connections, begins a request on each and goes on with it a byte at a time.
func drip(request func(i int) (begin, then string)) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		atOnce(400, func(i int) {
			begin, then := request(i)
			a.attempts.Add(1)
			conn, ok := a.connect(ctx, a.API)
			if !ok {
				return
			}
			defer conn.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				a.tell(answered(bufio.NewReader(conn)))
			}()
			_, err := io.WriteString(conn, begin)
			ticker := time.NewTicker(50 * time.Millisecond)
			defer ticker.Stop()
			for err == nil {
				select {
				case <-ticker.C:
					_, err = io.WriteString(conn, then)
				case <-done:
					return
				}
			}
			<-done
		})
		return nil
	}
}

// silent holds as many connections as it may, and says little on them.
func silent(where func(*attacker) string, text string) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		a.hold(ctx, where(a), a.size(1000, 5000), text, func(int) string { return a.Source })
		return nil
	}
}

// hold opens connections, keeps them to the end, and tells when one is closed.
func (a *attacker) hold(ctx context.Context, to string, n int, text string, from func(i int) string) {
	var open sync.WaitGroup
	each(ctx, n, func(i int) {
		a.attempts.Add(1)
		conn, err := a.dialFrom(ctx, from(i), to)
		if err != nil {
			a.tell("not connected")
			return
		}
		_ = conn.SetDeadline(until(ctx))
		if text == "" {
			text = "G"
		}
		_, _ = io.WriteString(conn, text)
		open.Go(func() {
			defer conn.Close()
			if _, err := io.Copy(io.Discard, conn); err != nil {
				a.tell(hungUp(err))
				return
			}
			a.tell("closed")
		})
	})
	open.Wait()
}

func manyAddresses(ctx context.Context, a *attacker) error {
	a.hold(ctx, a.API, a.size(3000, 12_000), "", func(i int) string { return fmt.Sprintf("127.0.66.%d", 1+i%200) })
	return nil
}

// churn opens and closes connections.
func churn(where func(*attacker) string) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		swarm(ctx, 8, func(int) {
			a.attempts.Add(1)
			conn, ok := a.connect(ctx, where(a))
			if !ok {
				return
			}
			_, _ = io.WriteString(conn, "G")
			_ = conn.Close()
			a.tell("connected")
		})
		return nil
	}
}

func wrongProtocols(ctx context.Context, a *attacker) error {
	hello := "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("A", 512)
	texts := []string{
		hello, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\xff", 1<<16), "PRI * HTTP/1.1\r\n\r\n", "\x00\x00\x00\x00", "SSH-2.0-x\r\n",
		"*1\r\n$4\r\nPING\r\n", strings.Repeat("\r\n", 1<<14), strings.Repeat("A", 1<<16), "GET\x00/\x00HTTP/1.1\r\n\r\n",
		"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
		"GET /v1/clusters HTTP/1.1\r\n\r\n", "GET /v1/clusters HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
	}
	swarm(ctx, 8, func(i int) {
		for j := range texts {
			if ctx.Err() == nil {
				a.say(ctx, a.API, texts[(i+j)%len(texts)])
			}
		}
	})
	return nil
}

// smuggling hides a second request in a first one, and names paths in odd ways.
func smuggling(ctx context.Context, a *attacker) error {
	hidden := "GET /v1/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n"
	texts := []string{
		"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden,
		"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n" + hidden,
		"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n" + hidden,
		"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" + hidden,
		"GET http://localhost/v1/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n", "CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n",
		"TRACE /v1/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /healthz/../v1/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET //v1/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /%76%31/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /v1/clusters%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /v1/sandboxes/..%2f..%2fclusters HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /v1/" + strings.Repeat("a/", 8<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
	}
	swarm(ctx, 4, func(i int) {
		for j := range texts {
			if ctx.Err() == nil {
				a.sayTwo(ctx, texts[(i+j)%len(texts)])
			}
		}
	})
	return nil
}

// unread sends requests and reads no response.
func unread(text string) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		swarm(ctx, 100, func(int) {
			conn, ok := a.connectDeaf(ctx, a.API)
			if !ok {
				return
			}
			defer conn.Close()
			for {
				a.attempts.Add(1)
				if _, err := io.WriteString(conn, text); err != nil {
					a.tell(hungUp(err))
					break
				}
			}
		})
		return nil
	}
}

// healthCalls begins health checks, which need no key, and ends none.
func healthCalls(ctx context.Context, a *attacker) error {
	var all sync.WaitGroup
	for range 12 {
		conn, err := a.grpc("")
		if err != nil {
			return err
		}
		defer conn.Close()
		for i := range a.size(100, 250) {
			all.Go(func() {
				if i%4 != 0 {
					a.unfinished(ctx, conn, healthv1.Health_Check_FullMethodName)
					return
				}
				a.attempts.Add(1)
				stream, err := healthv1.NewHealthClient(conn).Watch(ctx, &healthv1.HealthCheckRequest{}) // goes on
				if err == nil {
					_, err = stream.Recv()
				}
				a.tellError(err)
			})
		}
	}
	all.Wait()
	return nil
}

// unfinished begins a call, and does not end its request.
func (a *attacker) unfinished(ctx context.Context, conn *grpc.ClientConn, method string) {
	a.attempts.Add(1)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method, grpc.ForceCodec(raw{}))
	if err == nil {
		_ = stream.SendMsg(make([]byte, 200<<10)) // waits for room
		err = stream.RecvMsg(nil)
	}
	a.tellError(err)
}

func methodsWithoutKey(ctx context.Context, a *attacker) error {
	conn, err := a.grpc("")
	if err != nil {
		return err
	}
	defer conn.Close()
	methods := []string{
		createMethod, sandboxv1.Sandboxes_ListSandboxes_FullMethodName, sandboxv1.Clusters_ForgetCluster_FullMethodName,
		sandboxv1.Hub_BackupHub_FullMethodName, sandboxv1.Envs_ListEnvs_FullMethodName, "/atoll.sandbox.v1.Sandboxes/Nothing",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/" + strings.Repeat("x", 1000),
	}
	swarm(ctx, 16, func(i int) {
		for j := range methods {
			a.attempts.Add(1)
			if err := conn.Invoke(ctx, methods[(i+j)%len(methods)], []byte{}, nil, grpc.ForceCodec(raw{})); ctx.Err() == nil {
				a.tellError(err)
			}
		}
	})
	return nil
}

// crossSite is a page of another site, in the browser of a user of a worker's local API, which asks for no key.
func crossSite(ctx context.Context, a *attacker) error {
	by := a.client()
	at := "http://" + a.WorkerAPI
	swarm(ctx, 8, func(int) {
		for _, header := range [][]string{
			{"Sec-Fetch-Site", "cross-site"}, {"Origin", "http://evil.example"}, {"Origin", "null"},
			{"Sec-Fetch-Site", "same-site", "Origin", "http://localhost:1"},
			{"Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain"},
		} {
			a.ask(ctx, by, "POST", at+"/v1/sandboxes", "", `{"env":"spare"}`, header...)
			a.ask(ctx, by, "DELETE", at+"/v1/sandboxes/"+a.Canary, "", "", header...)
		}
	})
	return nil
}

// reboundHosts reaches the local API under a name that was rebound to this machine.
func reboundHosts(ctx context.Context, a *attacker) error {
	by := a.client()
	swarm(ctx, 8, func(int) {
		for _, host := range []string{"evil.example", "evil.example:8082", "127.0.0.1.evil.example", "localhost.evil.example", "[::ffff:8.8.8.8]",
			"8.8.8.8"} {
			a.ask(ctx, by, "GET", "http://"+a.WorkerAPI+"/v1/sandboxes", "", "", "Host", host)
		}
	})
	return nil
}
