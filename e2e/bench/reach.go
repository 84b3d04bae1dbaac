// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/pkg/reach"
)

const (
	reachPairs = 8
	echoes     = 200      // round trips of a leg
	bulk       = 64 << 20 // bytes of a leg
	opens      = 20       // connections of a leg
)

// What the port inside is asked for, by the first byte of a connection.
const (
	wantEcho = 'e'
	wantBulk = 'b'
)

// reachArm opens connections to the port inside, one way or the other.
type reachArm func(ctx context.Context) (io.ReadWriteCloser, error)

// reaching measures connections to a port of a sandbox, through hub, tunnel and worker, beside ones through the same API
// server alone. Each connection of either arm has one of its own to the API server.
func reaching(ctx context.Context, binDir, outDir string) ([]result, error) {
	return onOnePlane(ctx, binDir, filepath.Join(outDir, "logs-reach"), plane.Options{}, func(p *plane.Plane, atoll *stack.Stack) ([]result, error) {
		sandbox, err := oneSandbox(ctx, p, atoll)
		if err != nil {
			return nil, err
		}
		inside, err := newInside()
		if err != nil {
			return nil, err
		}
		defer func() { _ = inside.Close() }()
		_, port, _ := net.SplitHostPort(inside.Addr().String())
		direct, err := directArm(p.Config(), sandbox, port)
		if err != nil {
			return nil, err
		}
		return compareReach(ctx, direct, tunnelArm(atoll.HubEndpoint(), sandbox, port))
	})
}

func oneSandbox(ctx context.Context, p *plane.Plane, atoll *stack.Stack) (*sandboxv1.Sandbox, error) {
	hub, err := atoll.HubClient()
	if err != nil {
		return nil, err
	}
	if out, err := p.KubectlInput(ctx, strings.NewReader(fmt.Sprintf(manifests, 1)), "apply", "-f", "-"); err != nil {
		return nil, fmt.Errorf("applying the Env: %w\n%s", err, out)
	}
	var sandbox *sandboxv1.Sandbox
	err = stack.Eventually(ctx, time.Minute, "a sandbox", func(ctx context.Context) (bool, string) {
		sandbox, err = hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Namespace: namespace, Env: envName})
		return err == nil, fmt.Sprint(err)
	})
	return sandbox, err
}

// newInside listens where the imitated kubelet looks for every Pod's ports.
func newInside() (net.Listener, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening as the sandbox: %w", err)
	}
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				first := make([]byte, 1)
				if _, err := io.ReadFull(conn, first); err != nil {
					return
				}
				if first[0] == wantEcho {
					_, _ = io.Copy(conn, conn)
					return
				}
				piece := make([]byte, 64<<10)
				for range bulk / len(piece) {
					if _, err := conn.Write(piece); err != nil {
						return
					}
				}
			}()
		}
	}()
	return lis, nil
}

// directArm forwards a port as kubectl does, with a connection to the API server for each connection.
func directArm(config *restclient.Config, sandbox *sandboxv1.Sandbox, port string) (reachArm, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	url := kube.CoreV1().RESTClient().Get().Namespace(sandbox.GetNamespace()).Resource("pods").Name(sandbox.GetPod()).SubResource("portforward").URL()
	return func(context.Context) (io.ReadWriteCloser, error) {
		dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, config)
		if err != nil {
			return nil, err
		}
		conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		if err != nil {
			return nil, err
		}
		headers := http.Header{}
		headers.Set(corev1.PortHeader, port)
		headers.Set(corev1.PortForwardRequestIDHeader, "0")
		headers.Set(corev1.StreamType, corev1.StreamTypeError)
		if _, err := conn.CreateStream(headers); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		headers.Set(corev1.StreamType, corev1.StreamTypeData)
		stream, err := conn.CreateStream(headers)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return forwardedStream{stream, conn}, nil
	}, nil
}

type forwardedStream struct {
	httpstream.Stream
	conn httpstream.Connection
}

func (f forwardedStream) Close() error { return f.conn.Close() }

// tunnelArm is what atollctl port-forward does.
func tunnelArm(hub stack.Endpoint, sandbox *sandboxv1.Sandbox, port string) reachArm {
	url := "ws" + strings.TrimPrefix(hub.URL(), "http") + "/v1/sandboxes/" + sandbox.GetId() + "/ports/" + port
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		dialer := websocket.Dialer{Subprotocols: []string{reach.TCPProtocol}, ReadBufferSize: reach.MaxMessage, WriteBufferSize: reach.MaxMessage}
		conn, answer, err := dialer.DialContext(ctx, url, nil)
		if err != nil {
			return nil, err
		}
		_ = answer.Body.Close()
		return &socketStream{Conn: conn}, nil
	}
}

type socketStream struct {
	*websocket.Conn
	rest io.Reader
}

func (s *socketStream) Read(p []byte) (int, error) {
	for {
		if s.rest == nil {
			_, reader, err := s.NextReader()
			if err != nil {
				return 0, err
			}
			s.rest = reader
		}
		n, err := s.rest.Read(p)
		if errors.Is(err, io.EOF) {
			s.rest, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (s *socketStream) Write(p []byte) (int, error) {
	return len(p), s.WriteMessage(websocket.BinaryMessage, p)
}

// compareReach takes the arms in turns (ABBA). The tunnel has three hops more (hub, worker, and the WebSocket to the hub), each
// of which copies every byte, on the same cores.
func compareReach(ctx context.Context, direct, tunnel reachArm) ([]result, error) {
	var results []result
	for _, figure := range []struct {
		name, unit string
		leg        func(context.Context, reachArm) (leg, error)
		value      func(leg) float64
		target     float64
		upper      bool
	}{
		{"tunnel: round trip of a byte, p50", "ms", echoLeg, func(l leg) float64 { return millis(quantile(l.latencies, 0.5)) }, 5, true},
		{"tunnel: opening a connection to its first byte, p50", "ms", openLeg, func(l leg) float64 { return millis(quantile(l.latencies, 0.5)) }, 3, true},
		{"tunnel: bytes of one connection", "MB/s", bulkLeg, func(l leg) float64 { return l.rate }, 0.3, false},
	} {
		var pairs []pair
		for i := range reachPairs {
			var p pair
			order := []struct {
				arm reachArm
				to  *leg
			}{{direct, &p.raw}, {tunnel, &p.hub}}
			if i%2 == 1 {
				order[0], order[1] = order[1], order[0]
			}
			for _, turn := range order {
				var err error
				if *turn.to, err = figure.leg(ctx, turn.arm); err != nil {
					return nil, fmt.Errorf("%s: %w", figure.name, err)
				}
			}
			pairs = append(pairs, p)
		}
		var ratios, values, limits []float64
		var latencies []time.Duration
		for _, p := range pairs {
			values, limits = append(values, figure.value(p.hub)), append(limits, figure.value(p.raw))
			ratios = append(ratios, figure.value(p.hub)/figure.value(p.raw))
			latencies = append(latencies, p.hub.latencies...)
		}
		ratio, bounds := medianWithInterval(ratios)
		r := result{Name: figure.name, Value: round(median(values)), Unit: figure.unit}.withLatencies(latencies, 0)
		results = append(results, r.against(median(limits), ratio, bounds, figure.target, figure.upper))
		fmt.Printf("  %s: %.3g %s, direct %.3g\n", figure.name, median(values), figure.unit, median(limits))
	}
	return results, nil
}

// echo is a round trip.
func echo(conn io.ReadWriter, buffer []byte) error {
	if _, err := conn.Write(buffer); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, buffer)
	return err
}

func echoLeg(ctx context.Context, arm reachArm) (l leg, err error) {
	conn, err := arm(ctx)
	if err != nil {
		return l, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{wantEcho}); err != nil {
		return l, err
	}
	buffer := []byte{0}
	for i := range echoes + echoes/10 {
		began := time.Now()
		if err := echo(conn, buffer); err != nil {
			return l, err
		}
		if i >= echoes/10 { // the first ones warm up
			l.latencies = append(l.latencies, time.Since(began))
		}
	}
	return l, nil
}

func openLeg(ctx context.Context, arm reachArm) (l leg, err error) {
	for range opens {
		began := time.Now()
		conn, err := arm(ctx)
		if err == nil {
			err = errors.Join(echoOnce(conn), conn.Close())
		}
		if err != nil {
			return l, err
		}
		l.latencies = append(l.latencies, time.Since(began))
	}
	return l, nil
}

func echoOnce(conn io.ReadWriter) error {
	if _, err := conn.Write([]byte{wantEcho}); err != nil {
		return err
	}
	return echo(conn, []byte{0})
}

func bulkLeg(ctx context.Context, arm reachArm) (l leg, err error) {
	conn, err := arm(ctx)
	if err != nil {
		return l, err
	}
	defer conn.Close()
	began := time.Now()
	if _, err := conn.Write([]byte{wantBulk}); err != nil {
		return l, err
	}
	if _, err := io.CopyN(io.Discard, conn, bulk); err != nil {
		return l, err
	}
	took := time.Since(began)
	l.latencies, l.rate = append(l.latencies, took), bulk/1e6/took.Seconds()
	return l, nil
}
