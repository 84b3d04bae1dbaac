// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/pkg/reach"
)

// reachRows attack by conversations with the adversary's own sandbox.
func reachRows() []row {
	return []row{
		{name: "unread-ports", role: tenant, told: []string{"reached"}, attack: unreadPorts, direct: directUnreadPorts},
		{name: "unread-logs", role: tenant, told: []string{"101"}, attack: unreadLogs, direct: directUnreadLogs},
		{name: "watched-logs", role: tenant, told: []string{"200"}, attack: watchedLogs},
		{name: "many-conversations", role: tenant, told: []string{"429.*"}, attack: manyConversations, direct: directManyConversations},
		{name: "left-conversations", role: tenant, told: []string{"left"}, attack: leftConversations, direct: directLeftConversations},
		{name: "odd-exec", role: tenant, told: []string{"400.*|431|414"}, never: []string{"500.*"}, attack: oddExec},
		{name: "others-conversations", role: tenant, told: []string{"404 NOT_FOUND"}, never: []string{"2.*|101.*"}, attack: othersConversations},
		{name: "socket-frames", role: tenant, told: []string{"socket closed"}, attack: socketFrames},
	}
}

// sandboxRows attack from inside a sandbox: what it serves on a port, and what it prints.
func sandboxRows() []row {
	bad, xs := []string{"50[0234].*"}, strings.Repeat("x", 64<<10)
	return []row{
		serverRow(row{name: "endless-header", role: sandbox, told: bad, never: []string{"2.*"}}, endless("HTTP/1.1 200 OK\r\nX: ", xs)),
		serverRow(row{name: "endless-header-lines", role: sandbox, told: bad, never: []string{"2.*"}},
			endless("HTTP/1.1 200 OK\r\n", strings.Repeat("a:\r\n", 1000))),
		serverRow(row{name: "endless-informational", role: sandbox, told: bad, never: []string{"2.*"}},
			endless("", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 100))),
		{name: "endless-trailer", role: sandbox, told: []string{"200"}, attack: served(8,
			endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n1\r\na\r\n0\r\nX: ", xs))},
		{name: "endless-chunk-header", role: sandbox, told: []string{"200"}, attack: served(8,
			endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", xs))},
		{name: "endless-body", role: sandbox, told: []string{"200"}, attack: served(2, endless("HTTP/1.1 200 OK\r\n\r\n", xs))},
		serverRow(row{name: "no-protocol", role: sandbox, told: bad, never: []string{"2.*"}},
			once(strings.Repeat("\x00\xffSSH-2.0\r\n", 1000))),
		serverRow(row{name: "unasked-upgrade", role: sandbox, told: bad, never: []string{"101.*|2.*"}},
			once("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")),
		{name: "wrong-lengths", role: sandbox, told: []string{"200|50[0234].*"}, attack: served(8,
			once("HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\nshort"))},
		{name: "silent-port", role: sandbox, told: []string{"reached"}, never: []string{"2.*"},
			attack: served(60, func(ctx context.Context, _ io.Writer) { <-ctx.Done() })},
		{name: "redirects", role: sandbox, told: []string{"location below the port"}, never: []string{"location outside.*"}, attack: redirects},
		{name: "host-headers", role: sandbox, told: []string{"confined"}, never: []string{"escaped.*"}, attack: hostHeaders},
		{name: "printed-lines", role: sandbox, told: []string{"101"}, attack: printedLines},
	}
}

// pour writes text until it cannot, or ctx ends.
func pour(ctx context.Context, w io.Writer, text string) {
	for ctx.Err() == nil {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// endless writes a text, and then another without end.
func endless(begin, then string) func(context.Context, io.Writer) {
	return func(ctx context.Context, w io.Writer) {
		_, _ = io.WriteString(w, begin)
		pour(ctx, w, then)
	}
}

// once writes a text.
func once(text string) func(context.Context, io.Writer) {
	return func(_ context.Context, w io.Writer) { _, _ = io.WriteString(w, text) }
}

// listen serves connections to a port of the sandbox, which on planes is one of this machine, and returns its number.
func (a *attacker) listen(ctx context.Context, serve func(conn net.Conn)) (port string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			a.tell("reached")
			go func() {
				defer conn.Close()
				_ = conn.SetDeadline(until(ctx))
				serve(counted{conn, a})
			}()
		}
	}()
	_, port, err = net.SplitHostPort(listener.Addr().String())
	return port, err
}

// port is the path of a port of the adversary's sandbox.
func (a *attacker) port(port string) string {
	return a.url("/v1/sandboxes/" + a.Sandbox + "/ports/" + port + "/")
}

// served has callers read a port whose server says what say writes.
func served(callers int, say func(ctx context.Context, w io.Writer)) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		port, err := a.serve(ctx, say)
		if err != nil {
			return err
		}
		by := a.client()
		swarm(ctx, callers, func(int) { a.ask(ctx, by, "GET", a.port(port), a.Tokens["mallory"], "") })
		return nil
	}
}

// serverRow is a row whose callers read a port until what say writes is refused. The direct ones read as much as the hub does.
func serverRow(r row, say func(ctx context.Context, w io.Writer)) row {
	r.attack = served(8, say)
	r.direct = func(ctx context.Context, a *attacker) error {
		open, err := a.forwarding(ctx, func(ctx context.Context) (string, error) { return a.serve(ctx, say) })
		if err != nil {
			return err
		}
		swarm(ctx, openingsAtOnce, func(int) {
			if conn, ok := open(ctx); ok {
				_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
				_, _ = io.CopyN(io.Discard, conn, headerRead)
				_ = conn.Close()
			}
		})
		return nil
	}
	return r
}

// headerRead is how much of a response's header the hub reads.
const headerRead = 64 << 10

// serve listens on a port that reads a request and writes what say does.
func (a *attacker) serve(ctx context.Context, say func(ctx context.Context, w io.Writer)) (port string, err error) {
	return a.listen(ctx, func(conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			say(ctx, conn)
		}
	})
}

// deaf makes requests on connections that are not read beyond the header, and are held to the end.
func (a *attacker) deaf(ctx context.Context, n int, path string) {
	atOnce(n, func(int) {
		a.attempts.Add(1)
		conn, ok := a.connectDeaf(ctx, a.API)
		if !ok {
			return
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, a.Tokens["mallory"])
		a.tell(answered(bufio.NewReaderSize(conn, 16)))
		<-ctx.Done()
	})
}

// flood listens on a port that never stops to write.
func (a *attacker) flood(ctx context.Context) (port string, err error) {
	return a.serve(ctx, endless("HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", 64<<10)))
}

// silence listens on a port that says nothing.
func (a *attacker) silence(ctx context.Context) (port string, err error) {
	return a.listen(ctx, func(net.Conn) { <-ctx.Done() })
}

// swallow listens on a port that reads.
func (a *attacker) swallow(ctx context.Context) (port string, err error) {
	return a.listen(ctx, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
}

func unreadPorts(ctx context.Context, a *attacker) error {
	port, err := a.flood(ctx)
	if err != nil {
		return err
	}
	a.deaf(ctx, a.size(40, 500), strings.TrimPrefix(a.port(port), a.url("")))
	return nil
}

// print has the adversary's sandbox print lines.
func (a *attacker) print(ctx context.Context, shell string) error {
	socket, err := a.exec(ctx, "sh", "-c", shell)
	if err != nil {
		return err
	}
	defer socket.Close()
	for {
		if _, _, err := socket.ReadMessage(); err != nil {
			return nil
		}
	}
}

// exec begins a command in the adversary's sandbox.
func (a *attacker) exec(ctx context.Context, command ...string) (*websocket.Conn, error) {
	at := url.URL{Scheme: "ws", Host: a.API, Path: "/v1/sandboxes/" + a.Sandbox + "/exec",
		RawQuery: url.Values{"command": command, "stdin": {"true"}, "stdout": {"true"}}.Encode()}
	dialer := websocket.Dialer{Subprotocols: []string{reach.ExecProtocol},
		NetDialContext: func(ctx context.Context, _, to string) (net.Conn, error) { return a.dial(ctx, to) }}
	header := http.Header{"Authorization": {"Bearer " + a.Tokens["mallory"]}}
	socket, response, err := dialer.DialContext(ctx, at.String(), header) //nolint:bodyclose // of a handshake; the dialer has read it
	if response != nil {
		a.tell(described(response))
	}
	if err != nil {
		return nil, fmt.Errorf("executing %q: %w", command, err)
	}
	context.AfterFunc(ctx, func() { _ = socket.Close() })
	return socket, nil
}

const (
	printMuch = `i=0; while [ $i -lt 60 ]; do head -c 65536 /dev/zero | tr '\0' x >> "$` + plane.ContainerLogEnv + `"; echo >> "$` +
		plane.ContainerLogEnv + `"; i=$((i+1)); done`
	printAlways = `i=0; while [ $i -lt 2000 ]; do echo line $i >> "$` + plane.ContainerLogEnv + `"; i=$((i+1)); done`
	printNone   = `: > "$` + plane.ContainerLogEnv + `"`
)

func unreadLogs(ctx context.Context, a *attacker) error {
	if err := a.print(ctx, printMuch); err != nil {
		return err
	}
	a.deaf(ctx, a.size(40, 500), "/v1/sandboxes/"+a.Sandbox+"/logs?follow")
	return a.clean()
}

// clean empties the container's log.
func (a *attacker) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), grace/2)
	defer cancel()
	return a.print(ctx, printNone)
}

// watchedLogs follows a log that does not grow.
func watchedLogs(ctx context.Context, a *attacker) error {
	a.deaf(ctx, a.size(100, 500), "/v1/sandboxes/"+a.Sandbox+"/logs?follow")
	return nil
}

func printedLines(ctx context.Context, a *attacker) error {
	by := a.client()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			a.ask(ctx, by, "GET", a.url("/v1/sandboxes/"+a.Sandbox+"/logs?follow"), a.Tokens["mallory"], "")
		})
	}
	err := a.print(ctx, printAlways)
	all.Wait()
	return errors.Join(err, a.clean())
}

// manyConversations holds more conversations than a key may have.
func manyConversations(ctx context.Context, a *attacker) error {
	port, err := a.silence(ctx)
	if err != nil {
		return err
	}
	a.deaf(ctx, 500, strings.TrimPrefix(a.port(port), a.url("")))
	return nil
}

func leftConversations(ctx context.Context, a *attacker) error {
	port, err := a.swallow(ctx)
	if err != nil {
		return err
	}
	by := a.client()
	swarm(ctx, 16, func(i int) {
		short, cancel := context.WithTimeout(ctx, time.Duration(5+i)*time.Millisecond)
		defer cancel()
		if a.ask(short, by, "GET", a.port(port), a.Tokens["mallory"], "") == "" {
			a.tell("left")
		}
	})
	return nil
}

func oddExec(ctx context.Context, a *attacker) error {
	by := a.client()
	swarm(ctx, 8, func(int) {
		for _, query := range []string{
			"exec", "exec?command=", "exec?command=" + strings.Repeat("x", 20<<10), "exec?" + strings.Repeat("command=x&", 2000),
			"exec?command=ls&tty=perhaps",
			"exec?command=ls&user=root", "logs?tail=-1", "logs?tail=99999999999999999999", "logs?since=-1s",
			fmt.Sprintf("logs?since=%dh", math.MaxInt32),
			"logs?container=../../etc", "ports/0/", "ports/65536/", "ports/-1/", "ports/%2e%2e/", "ports/22x/",
		} {
			a.ask(ctx, by, "GET", a.url("/v1/sandboxes/"+a.Sandbox+"/"+query), a.Tokens["mallory"], "")
		}
	})
	return nil
}

func othersConversations(ctx context.Context, a *attacker) error {
	by := a.client()
	swarm(ctx, 8, func(int) {
		for _, what := range []string{"logs", "exec?command=ls", "ports/8000/", "ports/22/"} {
			header := []string{}
			if strings.HasPrefix(what, "exec") {
				header = upgrading(reach.ExecProtocol)
			}
			a.ask(ctx, by, "GET", a.url("/v1/sandboxes/"+a.Canary+"/"+what), a.Tokens["mallory"], "", header...)
		}
	})
	return nil
}

// socketFrames sends messages that a WebSocket does not allow, and messages that do not end.
func socketFrames(ctx context.Context, a *attacker) error {
	swarm(ctx, 4, func(i int) {
		a.attempts.Add(1)
		socket, err := a.exec(ctx, "cat")
		if err != nil {
			return
		}
		defer socket.Close()
		_ = socket.SetWriteDeadline(until(ctx))
		conn := socket.NetConn()
		switch i {
		case 0: // a frame of 8 EiB
			_, err = conn.Write([]byte{0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4})
			if err == nil {
				pour(ctx, conn, strings.Repeat("\x00", 64<<10))
			}
		case 1: // pieces without an end
			for err == nil && ctx.Err() == nil {
				_, err = conn.Write(append([]byte{0x00, 0xfe, 0xff, 0xff, 0, 0, 0, 0}, make([]byte, 1<<16-1)...))
			}
		case 2: // pings
			for err == nil && ctx.Err() == nil {
				_, err = conn.Write([]byte{0x89, 0x80, 0, 0, 0, 0})
			}
		default: // not masked, and of an unknown kind
			_, _ = conn.Write([]byte{0x8f, 0x05, 'h', 'e', 'l', 'l', 'o'})
		}
		if _, _, err = socket.ReadMessage(); err != nil && ctx.Err() == nil {
			a.tell("socket closed")
		}
	})
	return nil
}
