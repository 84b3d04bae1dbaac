// SPDX-License-Identifier: Apache-2.0

package podtunnel_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/worker/internal/podtunnel"
)

// I14: what callers do not read takes little of the worker's memory, whichever way the API server forwards ports; and is all there when
// they do.
func TestI14UnreadPortsTakeLittleMemory(t *testing.T) {
	for name, upstream := range map[string]func(*testing.T, *rest.Config) *rest.Config{
		"by WebSocket": func(_ *testing.T, config *rest.Config) *rest.Config { return config }, "without": withoutWebSockets,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(o *podtunnel.Options) {
				var err error
				o.Upstream, err = podtunnel.NewAPIServer(upstream(t, east.Up(t).Config()))
				must.Succeed(t, err)
			})
			unreadPorts(t, w)
		})
	}
}

func unreadPorts(t *testing.T, w *world) {
	const (
		conversations = 20
		most          = 512 << 10 // each; without a bound it is 1.6 MiB
	)
	var heldUp atomic.Int32
	begin := make(chan struct{})
	number, err := strconv.Atoi(listen(t, func(conn net.Conn) {
		<-begin
		pour(conn, func() { heldUp.Add(1) })
	}))
	w.Must(err)
	id := w.claim().GetId()
	what := &federationv1.ReachCall{What: &federationv1.ReachCall_Port{Port: &federationv1.PortReach{Port: int32(number)}}}
	var tunnels []reach.Tunnel
	for range conversations {
		tunnel, err := w.service.Open(t.Context(), id, what)
		w.Must(err)
		defer tunnel.Close(nil)
		tunnels = append(tunnels, tunnel)
	}
	before := heap()
	close(begin)
	w.Eventually("the sources to be held up", func() error {
		n := heldUp.Load()
		return wait.If(n >= conversations, n)
	})
	each := (heap() - before) / conversations
	t.Logf("a conversation that is not read takes %d KiB", each>>10)
	if each > most {
		t.Errorf("a conversation that is not read takes %d bytes, want at most %d", each, most)
	}
	for read := 0; read < 8<<20; {
		message, err := tunnels[0].Recv()
		w.Must(err)
		for i, b := range message {
			if want := byte((read + i) >> 10); b != want {
				t.Fatalf("byte %d is %d, want %d", read+i, b, want)
			}
		}
		read += len(message)
	}
}

// pour writes until it cannot, and calls heldUp once: when it could write nothing for a while.
func pour(conn net.Conn, heldUp func()) {
	piece := make([]byte, 64<<10)
	once := false
	for at := 0; ; {
		for i := range piece {
			piece[i] = byte((at + i) >> 10)
		}
		if !once {
			_ = conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
		}
		n, err := conn.Write(piece)
		at += n
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !once:
			once = true
			heldUp()
			_ = conn.SetWriteDeadline(time.Time{})
		case err != nil:
			return
		}
	}
}

// heap is what this process uses: the worker's part, and that of the plane's kubelet, which queues nothing.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools kept over the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// withoutWebSockets is an API server as of Kubernetes 1.30, which forwards ports by SPDY alone.
func withoutWebSockets(t *testing.T, config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	transport, err := rest.TransportFor(config)
	must.Succeed(t, err)
	target, err := url.Parse(config.Host)
	must.Succeed(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "websocket" {
			http.Error(out, errNoWebSockets.Error(), http.StatusBadRequest)
			return
		}
		proxy.ServeHTTP(out, r)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

var errNoWebSockets = errors.New("ports are forwarded by SPDY alone")
