// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/http2frames"
)

// watchedFor is how long a client keeps its connection, in the bubble's time.
const watchedFor = 10 * time.Minute

// pinged connects a gRPC client that pings at this interval, makes no call and responds to no ping. It returns how long the connection
// lasts, in the bubble's time, and the code with which the server ends it.
func pinged(t *testing.T, every time.Duration) (age time.Duration, code http2.ErrCode) {
	t.Helper()
	server := grpc.NewServer(newGuard(Limits{IdleTimeout: time.Hour}.filled(), nil).options()...)
	lis := bufconn.Listen(64 << 10)
	go func() { _ = server.Serve(lis) }()
	defer server.Stop()
	conn, err := lis.Dial()
	must.Succeed(t, err)
	defer conn.Close()
	began := time.Now()
	time.AfterFunc(watchedFor, func() { _ = conn.Close() })
	_, err = io.WriteString(conn, http2frames.Preface)
	must.Succeed(t, err)
	framer := http2.NewFramer(conn, conn)
	must.Succeed(t, framer.WriteSettings())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for frame, err := framer.ReadFrame(); err == nil; frame, err = framer.ReadFrame() {
			if goAway, ok := frame.(*http2.GoAwayFrame); ok {
				code = goAway.ErrCode
			}
		}
	}()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_ = framer.WritePing(false, [8]byte{})
		case <-ended:
			return time.Since(began), code
		}
	}
}

// A client may ping every ten seconds, also without a call. The server closes a connection that pings more often, or that responds to no
// ping.
func TestI14PingsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		every       time.Duration
		least, most time.Duration // age of the connection
		code        http2.ErrCode
	}{
		"every 11 seconds": {every: 11 * time.Second, least: watchedFor, most: watchedFor},
		"every 9 seconds":  {every: 9 * time.Second, most: pingAfter, code: http2.ErrCodeEnhanceYourCalm},
		"never":            {every: watchedFor, least: pingAfter + pingTimeout, most: pingAfter + pingTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if age, code := pinged(t, c.every); age < c.least || age > c.most || code != c.code {
					t.Errorf("ended after %s with %s, want %s to %s and %s", age, code, c.least, c.most, c.code)
				}
			})
		})
	}
}

// A connection's windows do not grow; because the server holds what they let in.
func TestI14WindowsAreFixed(t *testing.T) {
	conn := talk(t, start(t), http2frames.Preface)
	framer := http2.NewFramer(conn, conn)
	must.Succeed(t, framer.WriteSettings())
	must.Succeed(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: callHeader(t, createMethod), EndHeaders: true}))
	part := make([]byte, 16<<10-1) // of a message of 64 KiB
	part[2] = 1
	for range 4 {
		must.Succeed(t, framer.WriteData(1, false, part))
	}
	var windows []uint32
	// settle returns once the server has responded to a ping. It responds to the server's pings meanwhile.
	settle := func() {
		must.Succeed(t, framer.WritePing(false, [8]byte{}))
		for {
			frame, err := framer.ReadFrame()
			must.Succeed(t, err)
			switch f := frame.(type) {
			case *http2.SettingsFrame:
				if window, ok := f.Value(http2.SettingInitialWindowSize); ok {
					windows = append(windows, window)
				}
			case *http2.PingFrame:
				if f.IsAck() {
					return
				}
				must.Succeed(t, framer.WritePing(true, f.Data))
			}
		}
	}
	settle()
	settle() // a server that measures the bandwidth by its pings has done so now
	if !slices.Equal(windows, []uint32{streamWindow}) {
		t.Errorf("the windows were %d, want always %d", windows, streamWindow)
	}
}
