// SPDX-License-Identifier: Apache-2.0

// Package forward forwards a port of a Pod as kubectl does, without hub and worker.
package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
)

// Port returns what opens connections to a port of a Pod, even one on its loopback, through the API server and the kubelet. Each has a
// connection of its own to the API server.
func Port(config *rest.Config, namespace, pod, port string) (func(context.Context) (net.Conn, error), error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	target := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	return func(ctx context.Context) (net.Conn, error) { return dial(ctx, config, target, port) }, nil
}

// maxFailure bounds the message of an API server that cannot forward.
const maxFailure = 64 << 10

func dial(ctx context.Context, config *rest.Config, target *url.URL, port string) (net.Conn, error) {
	type result struct {
		conn *conn
		err  error
	}
	done := make(chan result, 1)
	go func() { // the dialer takes no context
		conn, err := open(config, target, port)
		done <- result{conn, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, r.err
		}
		return r.conn, nil
	case <-ctx.Done():
		go func() {
			if r := <-done; r.conn != nil {
				_ = r.conn.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func open(config *rest.Config, target *url.URL, port string) (*conn, error) {
	dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(target, config)
	if err != nil {
		return nil, err
	}
	streams, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	headers := http.Header{}
	headers.Set(corev1.PortHeader, port)
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failures, err := streams.CreateStream(headers)
	if err != nil {
		return nil, errors.Join(err, streams.Close())
	}
	// Nothing is sent on it.
	_ = failures.Close()
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := streams.CreateStream(headers)
	if err != nil {
		return nil, errors.Join(err, streams.Close())
	}
	forwarded := &conn{Stream: data, streams: streams}
	go func() {
		// A message here, for example that the port has no listener, ends the connection.
		message, err := io.ReadAll(io.LimitReader(failures, maxFailure))
		if len(message) > 0 {
			err = errors.New(string(message))
		}
		if err != nil {
			forwarded.fail(err)
		}
	}()
	return forwarded, nil
}

// conn is a forwarded port as a connection. It ignores deadlines; because its users have deadlines of their own, and close it
// when they pass.
type conn struct {
	httpstream.Stream
	streams httpstream.Connection

	mu  sync.Mutex
	err error
}

func (c *conn) fail(err error) {
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	_ = c.streams.Close()
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		err = errors.Join(c.err, err)
		if c.err == nil && errors.Is(err, io.EOF) {
			err = io.EOF
		}
	}
	return n, err
}

// Close ends the connection with all its streams; closing the stream alone would only end the sending direction.
func (c *conn) Close() error { return errors.Join(c.Reset(), c.streams.Close()) }

func (*conn) LocalAddr() net.Addr              { return address{} }
func (*conn) RemoteAddr() net.Addr             { return address{} }
func (*conn) SetDeadline(time.Time) error      { return nil }
func (*conn) SetReadDeadline(time.Time) error  { return nil }
func (*conn) SetWriteDeadline(time.Time) error { return nil }

type address struct{}

func (address) Network() string { return "port-forward" }
func (address) String() string  { return "port-forward" }
