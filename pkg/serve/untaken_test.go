// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/http2frames"
)

// callHeader returns the header of a call. It is not indexed, so that each call of a connection has the same text.
func callHeader(t *testing.T, method string) []byte {
	t.Helper()
	var header bytes.Buffer
	encoder := hpack.NewEncoder(&header)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
		{Name: ":authority", Value: "localhost"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	} {
		f.Sensitive = true
		must.Succeed(t, encoder.WriteField(f))
	}
	return header.Bytes()
}

// callHealth opens a connection with so many health checks, none of whose responses may be sent.
func callHealth(t *testing.T, address string, calls uint32) net.Conn {
	t.Helper()
	conn := talk(t, address, http2frames.Preface)
	framer := http2.NewFramer(conn, conn)
	must.Succeed(t, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	header := callHeader(t, healthv1.Health_Check_FullMethodName)
	for i := range calls {
		err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: header, EndHeaders: true})
		if err == nil {
			err = framer.WriteData(2*i+1, true, make([]byte, 5))
		}
		if err != nil {
			break // the server has closed it
		}
	}
	return conn
}

// isClosed reports whether the server closes the connection in time.
func isClosed(conn net.Conn, within time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(within))
	_, err := io.Copy(io.Discard, conn)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// Responses that callers do not let through are few, also where no call is in flight any more.
func TestI14UntakenResponsesAreFew(t *testing.T) {
	address := start(t, secured, limits(func(l *Limits) { l.BodyTimeout, l.StrangerRate, l.StrangersRate = time.Hour, 1e6, 1e6 }))
	honest := healthv1.NewHealthClient(dial(t, address, insecure.NewCredentials()))
	const conns = maxUntaken/500 + 2
	closed := make(chan struct{}, 1)
	opened := 0
	open := func() {
		conn := callHealth(t, address, 500)
		opened++
		go func() {
			if isClosed(conn, patience) {
				select {
				case closed <- struct{}{}:
				default:
				}
			}
		}()
	}
	for range conns {
		open()
	}
	must.Succeed(t, wait.Until(t.Context(), patience, "a connection to be closed", func(context.Context) error {
		select {
		case <-closed:
			return nil
		default:
			open() // some calls of the others were refused, since too many arrived at once
			return fmt.Errorf("%d connections with 500 responses each that they do not take are kept", opened)
		}
	}))
	must.Succeed(t, wait.Until(t.Context(), patience, "another caller to be served", func(ctx context.Context) error {
		_, err := honest.Check(ctx, &healthv1.HealthCheckRequest{}) // refused while calls of its address arrive
		return err
	}))
}

// A response has a deadline, also where the connection still takes other frames.
func TestI14AnUntakenResponseHasADeadline(t *testing.T) {
	address := start(t, secured, limits(func(l *Limits) { l.BodyTimeout = 300 * time.Millisecond }))
	if !isClosed(callHealth(t, address, 1), patience) {
		t.Error("a connection that does not take its response is kept")
	}
}

// What is counted of a connection returns to nothing.
func TestUntakenForgets(t *testing.T) {
	u := newUntaken(10, time.Hour)
	a, b := net.Pipe()
	defer b.Close()
	c := newPaced(a, time.Hour, u)
	frame := func(kind, flags byte, stream byte) []byte { return []byte{0, 0, 1, kind, flags, 0, 0, 0, stream, 'x'} }
	text := append([]byte(http2frames.Preface), frame(http2frames.Headers, 0, 1)...)
	text = append(append(text, frame(http2frames.Headers, 0, 3)...), frame(http2frames.Headers, 0, 5)...)
	for i := range text { // however it is cut
		c.streams.read(text[i : i+1])
	}
	var returned []func()
	for range 3 {
		_, ended := u.runs(a.RemoteAddr())
		returned = append(returned, ended)
	}
	c.streams.seen()
	for i, f := range returned {
		f()
		if u.all != i+1 {
			t.Errorf("%d responses wait, want %d", u.all, i+1)
		}
	}
	c.streams.write(append(frame(http2frames.Headers, 0, 1), frame(http2frames.Headers, http2frames.EndStream, 1)...)) // the response of 1
	c.streams.read(frame(http2frames.Reset, 0, 3))
	c.streams.read(frame(http2frames.Headers, http2frames.EndStream, 1)) // trailers begin no call
	c.streams.seen()
	if u.all != 1 || len(c.streams.open) != 1 {
		t.Errorf("%d responses of %v wait, want one", u.all, c.streams.open)
	}
	_ = c.Close()
	if u.all != 0 || len(u.from) != 0 || len(u.conns) != 0 {
		t.Errorf("%d responses, addresses %v, connections %v are remembered (I10)", u.all, u.from, u.conns)
	}
}
