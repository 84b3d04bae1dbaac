// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	streamspdy "k8s.io/streaming/pkg/httpstream/spdy"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/worker/internal/sandboxes"
)

const (
	// Kubernetes 1.31 speaks portProtocol over a WebSocket; earlier versions speak it without one.
	portProtocol     = "portforward.k8s.io"
	tunneledProtocol = "SPDY/3.1+" + portProtocol
	pingEvery        = 30 * time.Second
	// errorPatience is how long after the end of the data its cause may arrive.
	errorPatience = time.Second
	maxErrorText  = 1 << 10
)

// port connects to a port in a Pod's network.
func (a *APIServer) port(ctx context.Context, place sandboxes.Place, port int32) (reach.Tunnel, error) {
	conn, err := a.forward(ctx, place)
	if err != nil {
		return nil, refused(place, err)
	}
	tunnel, err := openPort(ctx, conn, port)
	var told *problem.Error
	switch {
	case errors.As(err, &told):
		return nil, told
	case err != nil:
		return nil, refused(place, err)
	}
	return tunnel, nil
}

// openPort opens the streams of a port. It closes the connection if that fails or the context ends, because CreateStream takes no context
// and waits for 30 s if the API server does not respond.
func openPort(ctx context.Context, conn httpstream.Connection, port int32) (*portTunnel, error) {
	type opened struct {
		tunnel *portTunnel
		err    error
	}
	done := make(chan opened, 1)
	go func() {
		tunnel, err := newPortTunnel(conn, port)
		done <- opened{tunnel, err}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			_ = conn.Close()
		}
		return o.tunnel, o.err
	case <-ctx.Done():
		_ = conn.Close() // a stream that was opened meanwhile ends with it
		return nil, fmt.Errorf("opening the streams of a port: %w", context.Cause(ctx))
	}
}

func (a *APIServer) forward(ctx context.Context, place sandboxes.Place) (httpstream.Connection, error) {
	u := a.url(place, "portforward", nil)
	socket, err := a.upgrade(ctx, u, tunneledProtocol)
	if err == nil {
		return overSPDY(portforward.NewTunnelingConnection("atoll", socket))
	}
	if !httpstream.IsUpgradeFailure(err) {
		return nil, err
	}
	conn, err := a.upgradeToSPDY(ctx, u)
	if err != nil {
		return nil, err
	}
	return overSPDY(conn)
}

// upgradeToSPDY opens a connection for SPDY without a WebSocket. It does so as client-go does, which does not expose the connection.
func (a *APIServer) upgradeToSPDY(ctx context.Context, u *url.URL) (net.Conn, error) {
	config, err := rest.TLSConfigFor(a.config)
	if err != nil {
		return nil, fmt.Errorf("preparing to forward a port: %w", err)
	}
	dialer, err := streamspdy.NewRoundTripperWithConfig(streamspdy.RoundTripperConfig{TLS: config, Proxier: a.config.Proxy})
	if err != nil {
		return nil, fmt.Errorf("preparing to forward a port: %w", err)
	}
	upgrade := &upgrade{dial: dialer.Dial}
	transport, err := rest.HTTPWrappersForConfig(a.config, upgrade)
	if err != nil {
		return nil, fmt.Errorf("preparing to forward a port: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("preparing to forward a port: %w", err)
	}
	for name, value := range map[string]string{
		httpstream.HeaderConnection: httpstream.HeaderUpgrade, httpstream.HeaderUpgrade: streamspdy.HeaderSpdy31,
		httpstream.HeaderProtocolVersion: portProtocol,
	} {
		request.Header.Set(name, value)
	}
	a.name(request)
	response, err := transport.RoundTrip(request) //nolint:bodyclose // the connection is closed, or the caller's
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusSwitchingProtocols && strings.EqualFold(response.Header.Get(httpstream.HeaderUpgrade),
		streamspdy.HeaderSpdy31) {
		return upgrade.conn, nil
	}
	defer func() { _ = upgrade.conn.Close() }() // the response is its error
	text, err := io.ReadAll(io.LimitReader(response.Body, maxErrorText))
	status := &apierrors.StatusError{}
	if err == nil && json.Unmarshal(text, &status.ErrStatus) == nil && status.ErrStatus.Status == metav1.StatusFailure {
		return nil, status
	}
	return nil, fmt.Errorf("the API server does not support SPDY: %s: %s", response.Status, strings.TrimSpace(string(text)))
}

// upgrade sends one request on a connection of its own, and keeps the connection.
type upgrade struct {
	dial func(*http.Request) (net.Conn, error) // also sends the request
	conn net.Conn
}

func (u *upgrade) RoundTrip(request *http.Request) (*http.Response, error) {
	conn, err := u.dial(request)
	if err != nil {
		return nil, err
	}
	left := context.AfterFunc(request.Context(), func() { _ = conn.Close() })
	// After the header of an upgrade, the server sends nothing before this side has.
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if !left() {
		err = context.Cause(request.Context())
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	u.conn = conn
	return response, nil
}

// portTunnel is a TCP connection, with one stream for data and one for errors.
type portTunnel struct {
	conn   httpstream.Connection
	data   httpstream.Stream
	failed chan string // has the kubelet's message when the stream for errors has ended
	buffer [reach.MaxMessage - 1]byte
}

func newPortTunnel(conn httpstream.Connection, port int32) (*portTunnel, error) {
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	errorStream, err := conn.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("opening a stream for errors: %w", err)
	}
	_ = errorStream.Close() // nothing is sent on it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	t := &portTunnel{conn: conn, failed: make(chan string, 1)}
	go func() {
		text, _ := io.ReadAll(io.LimitReader(errorStream, maxErrorText)) // ends with the connection
		t.failed <- string(text)
		_, _ = io.Copy(io.Discard, errorStream)
	}()
	if t.data, err = conn.CreateStream(headers); err != nil {
		// A kubelet that cannot connect may reset the stream before it has replied.
		return nil, t.reason(fmt.Errorf("opening a stream: %w", err))
	}
	return t, nil
}

func (t *portTunnel) Recv() ([]byte, error) {
	message, err := read(t.data, t.buffer[:])
	if err != nil {
		return nil, t.reason(err)
	}
	return message, nil
}

// reason returns why the stream for data ended with err: the kubelet's message if there is one, else err.
func (t *portTunnel) reason(err error) error {
	select {
	case why := <-t.failed:
		t.failed <- why
		if why != "" {
			return notReached(why)
		}
	case <-time.After(errorPatience): // the stream for errors outlives an orderly end
	}
	return err
}

// notReached returns the error for a port, given the kubelet's message.
func notReached(why string) error {
	if why = strings.TrimSpace(why); strings.HasSuffix(why, "connection refused") {
		return problem.New(problem.Unavailable, "%s: %s", reach.NothingListens, why)
	}
	return problem.New(problem.Unavailable, "the port was not reached: %s", why)
}

func (t *portTunnel) Send(message []byte) error {
	_, err := t.data.Write(message)
	return err
}

func (t *portTunnel) CloseSend() error     { return t.data.Close() }
func (t *portTunnel) Close(error)          { _ = t.conn.Close() }
func (t *portTunnel) Cut() <-chan struct{} { return nil }
