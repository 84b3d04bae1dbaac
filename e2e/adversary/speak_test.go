// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
)

// answered is the response on a connection, as the attacker is told it: the code and the reason, or how the connection ended.
func answered(in *bufio.Reader) string {
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		return hungUp(err)
	}
	defer r.Body.Close()
	return described(r)
}

// described is an HTTP response: its code, and the reason of a problem.
func described(r *http.Response) string {
	var body struct{ Reason string }
	if r.Header.Get("Content-Type") == "application/problem+json" {
		_ = json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&body)
	}
	return strings.TrimSpace(fmt.Sprint(r.StatusCode, " ", body.Reason))
}

// hungUp is how a connection ended: closed by the hub, or not.
func hungUp(err error) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "silence"
	case errors.Is(err, net.ErrClosed):
		return "left" // by the attacker
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "closed"
	default:
		return "error: " + err.Error()
	}
}

// until is when the attacker stops waiting for a response.
func until(ctx context.Context) time.Time {
	end, _ := ctx.Deadline()
	return end
}

// say sends text on a connection of its own, and tells the response. It reads while it writes; because the hub may hang up before
// it has read all.
func (a *attacker) say(ctx context.Context, to, text string) {
	a.attempts.Add(1)
	conn, ok := a.connect(ctx, to)
	if !ok {
		return
	}
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, text) }()
	a.tell(answered(bufio.NewReader(conn)))
}

// sayTwo is say for a text with a request that is hidden in another. It tells the response to the second apart, and reads the first to
// its end before. Without a first response there is no second: a late first one would be taken for it.
func (a *attacker) sayTwo(ctx context.Context, text string) {
	a.attempts.Add(1)
	conn, ok := a.connect(ctx, a.API)
	if !ok {
		return
	}
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, text) }()
	in := bufio.NewReader(conn)
	first, err := http.ReadResponse(in, nil)
	if err != nil {
		a.tell(hungUp(err))
		return
	}
	a.tell(described(first))
	_, _ = io.Copy(io.Discard, first.Body) // Close would leave a body that ends with the connection
	_ = first.Body.Close()
	_ = conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
	a.tell("then " + answered(in))
}

// told1 tells, and returns what.
func (a *attacker) told1(what string) string {
	a.tell(what)
	return what
}

// post is the text of a request for a sandbox.
func post(token, body string, header ...string) string {
	lines := append([]string{"POST /v1/sandboxes HTTP/1.1", "Host: localhost", "Content-Type: application/json"}, header...)
	if token != "" {
		lines = append(lines, "Authorization: Bearer "+token)
	}
	return strings.Join(append(lines, fmt.Sprintf("Content-Length: %d", len(body)), "", ""), "\r\n") + body
}

// client makes HTTP requests from the attacker's address.
func (a *attacker) client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, to string) (net.Conn, error) { return a.dial(ctx, to) },
			MaxIdleConnsPerHost: 64},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// request makes one request, with headers that are names and values in turn.
func (a *attacker) request(ctx context.Context, by *http.Client, method, url, key, body string, header ...string) (*http.Response, error) {
	a.attempts.Add(1)
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		a.tell("no request: " + err.Error())
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if r.Header[header[i]] = []string{header[i+1]}; header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	return by.Do(r)
}

// ask makes one request and tells the response.
func (a *attacker) ask(ctx context.Context, by *http.Client, method, url, token, body string, header ...string) string {
	response, err := a.request(ctx, by, method, url, token, body, header...)
	if err != nil {
		if ctx.Err() != nil {
			return "" // its time is over
		}
		return a.told1("closed")
	}
	defer response.Body.Close()
	what := a.told1(described(response))
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
	return what
}

// url is an address of the hub's REST API.
func (a *attacker) url(path string) string { return "http://" + a.API + path }

// grpc connects to the hub's API with a key, or without one. The caller closes the connection.
func (a *attacker) grpc(key string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	options = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(a.dial), grpc.WithDisableServiceConfig(),
	}, options...)
	if key != "" {
		options = append(options, grpc.WithPerRPCCredentials(token(key)))
	}
	return grpc.NewClient("passthrough:///"+a.API, options...)
}

// h2 is a connection of raw HTTP/2 frames.
type h2 struct {
	net.Conn
	*http2.Framer
	out  *bufio.Writer
	gone chan struct{} // closed when the hub has hung up
}

// unheard begins HTTP/2 on a connection that is not read.
func unheard(conn net.Conn, settings ...http2.Setting) (*h2, error) {
	c := &h2{Conn: conn, out: bufio.NewWriterSize(conn, 16<<10), gone: make(chan struct{})}
	c.Framer = http2.NewFramer(c.out, conn)
	c.AllowIllegalWrites = true
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err := io.WriteString(c.out, http2.ClientPreface)
	if err == nil {
		err = c.WriteSettings(settings...)
	}
	if err == nil {
		err = c.out.Flush()
	}
	return c, err
}

// frames connects on n goroutines, writes frames until the hub hangs up, and connects again. Without over, it speaks no TLS.
func (a *attacker) frames(
	ctx context.Context, n int, to string, over *tls.Config, write func(c *h2, i uint32) error, settings ...http2.Setting,
) {
	swarm(ctx, n, func(int) {
		conn, ok := a.connect(ctx, to)
		if !ok {
			return
		}
		defer conn.Close()
		wire := conn
		if over != nil {
			wire = tls.Client(conn, over)
		}
		c, err := unheard(wire, settings...)
		go c.listen(a)
		if err != nil {
			a.tell(hungUp(err))
			return
		}
		c.flood(ctx, a, write)
	})
}

// listen tells each kind of frame that says how the hub takes the attack.
func (c *h2) listen(a *attacker) {
	defer close(c.gone)
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			a.tell(hungUp(err))
			return
		}
		switch f := frame.(type) {
		case *http2.GoAwayFrame:
			a.tell("GOAWAY " + f.ErrCode.String())
		case *http2.RSTStreamFrame:
			a.tell("RST_STREAM " + f.ErrCode.String())
		case *http2.MetaHeadersFrame:
			a.tell("HEADERS" + resultIn(f))
		case *http2.SettingsFrame:
			a.tell("SETTINGS" + ack(f.IsAck()))
		case *http2.PingFrame:
			a.tell("PING" + ack(f.IsAck()))
		}
	}
}

// resultIn is the result of a call, where a header has one.
func resultIn(f *http2.MetaHeadersFrame) string {
	for _, field := range f.Fields {
		if field.Name == "grpc-status" {
			n, _ := strconv.Atoi(field.Value)
			return " " + codes.Code(n).String() //nolint:gosec // a code of gRPC
		}
	}
	if status := f.PseudoValue("status"); status != "200" {
		return " " + status
	}
	return ""
}

func ack(is bool) string {
	if is {
		return " ACK"
	}
	return ""
}

// flood writes frames until the hub hangs up, the time is over, or no number of a stream is left: it has 31 bits.
func (c *h2) flood(ctx context.Context, a *attacker, write func(c *h2, i uint32) error) {
	for i := uint32(0); ctx.Err() == nil; i++ {
		select {
		case <-c.gone:
			return
		default:
		}
		a.attempts.Add(1)
		if i > 1<<20 || write(c, i) != nil || i%16 == 0 && c.out.Flush() != nil {
			<-c.gone
			return
		}
	}
}

// block encodes header fields, pairs of name and value.
func block(pairs ...string) []byte {
	var out strings.Builder
	encoder := hpack.NewEncoder(&out)
	for i := 0; i+1 < len(pairs); i += 2 {
		_ = encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return []byte(out.String())
}

// calling are the fields of a gRPC call.
func calling(method string, more ...string) []byte {
	return block(append([]string{":method", "POST", ":scheme", "http", ":path", method, ":authority", "localhost",
		"content-type", "application/grpc", "te", "trailers"}, more...)...)
}

// begin writes the header of a call.
func (c *h2) begin(stream uint32, header []byte) error {
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header, EndHeaders: true})
}

// writeCall writes a call with an empty message.
func (c *h2) writeCall(stream uint32, header []byte) error {
	if err := c.begin(stream, header); err != nil {
		return err
	}
	return c.WriteData(stream, true, make([]byte, 5))
}
