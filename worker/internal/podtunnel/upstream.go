// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiwebsocket "k8s.io/client-go/transport/websocket"
	"k8s.io/streaming/pkg/httpstream"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/worker/internal/sandboxes"
)

// The worker never calls a kubelet's own API: the API server authorizes, and knows where the Pod is.
//
// +kubebuilder:rbac:groups="",resources=pods/exec;pods/portforward,verbs=get;create
// +kubebuilder:rbac:groups="",resources=pods/log,verbs=get

// APIServer reaches Pods through an API server.
type APIServer struct {
	config *rest.Config
	client kubernetes.Interface
	// sessions are the TLS sessions that the next conversation resumes. Each conversation has a connection of its own, and full handshakes are
	// most of what opening it costs the API server.
	sessions tls.ClientSessionCache
}

var _ Upstream = (*APIServer)(nil)

// NewAPIServer returns an APIServer for a cluster. Each conversation has its own connection.
func NewAPIServer(config *rest.Config) (*APIServer, error) {
	config = rest.CopyConfig(config)
	// With HTTP/2, an unread log would fill megabytes before its source stops.
	config.NextProtos = []string{"http/1.1"}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client to reach Pods: %w", err)
	}
	return &APIServer{config: config, client: client, sessions: tls.NewLRUClientSessionCache(0)}, nil
}

// Dial opens a conversation.
func (a *APIServer) Dial(ctx context.Context, place sandboxes.Place, what *federationv1.ReachCall) (reach.Tunnel, error) {
	ctx = asking(ctx, what)
	switch call := what.GetWhat().(type) {
	case *federationv1.ReachCall_Exec:
		return a.exec(ctx, place, call.Exec)
	case *federationv1.ReachCall_Logs:
		if call.Logs.GetRuntime() != "" {
			return a.logFile(ctx, place, call.Logs)
		}
		return a.logs(ctx, place, call.Logs)
	case *federationv1.ReachCall_Port:
		return a.port(ctx, place, call.Port.GetPort())
	default:
		return nil, problem.New(problem.Unimplemented, "this worker does not know the requested kind of access")
	}
}

// container returns the sandbox's own container, or the requested one.
func container(place sandboxes.Place, asked string) (string, error) {
	name, fault := place.Allowed.Container(asked, place.Container)
	if fault != nil {
		return "", fault
	}
	return name, nil
}

// permit rejects what callers may not reach in a sandbox's Pod.
func permit(place sandboxes.Place, what *federationv1.ReachCall) error {
	var err error
	switch call := what.GetWhat().(type) {
	case *federationv1.ReachCall_Exec:
		_, err = container(place, call.Exec.GetContainer())
	case *federationv1.ReachCall_Logs:
		_, err = container(place, call.Logs.GetContainer())
	case *federationv1.ReachCall_Port, *federationv1.ReachCall_Secrets:
		if place.PortFault != nil {
			err = place.PortFault
		}
	}
	return err
}

func (a *APIServer) url(place sandboxes.Place, subresource string, query url.Values) *url.URL {
	u := a.client.CoreV1().RESTClient().Get().Namespace(place.Pod.Namespace).Resource("pods").Name(place.Pod.Name).
		SubResource(subresource).URL()
	u.RawQuery = query.Encode()
	return u
}

// upgrade opens a WebSocket to the API server.
func (a *APIServer) upgrade(ctx context.Context, u *url.URL, protocol string) (*websocket.Conn, error) {
	transport, holder, err := apiwebsocket.RoundTripperFor(a.config)
	if err != nil {
		return nil, fmt.Errorf("preparing a WebSocket: %w", err)
	}
	if upgrader, ok := holder.(*apiwebsocket.RoundTripper); ok && upgrader.TLSConfig != nil {
		upgrader.TLSConfig.ClientSessionCache = a.sessions
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("preparing a WebSocket: %w", err)
	}
	a.name(request)
	return apiwebsocket.Negotiate(transport, holder, request, protocol)
}

// exec starts a command. Its protocol needs Kubernetes 1.30 or later.
func (a *APIServer) exec(ctx context.Context, place sandboxes.Place, exec *federationv1.ExecReach) (reach.Tunnel, error) {
	name, err := container(place, exec.GetContainer())
	if err != nil {
		return nil, err
	}
	query := url.Values{"command": exec.GetCommand(), "container": {name}}
	for stream, wanted := range map[string]bool{
		"stdin": exec.GetStdin(), "stdout": exec.GetStdout(), "stderr": exec.GetStderr(), "tty": exec.GetTty(),
	} {
		if wanted {
			query.Set(stream, strconv.FormatBool(true))
		}
	}
	conn, err := a.upgrade(ctx, a.url(place, "exec", query), reach.ExecProtocol)
	if err != nil {
		return nil, refused(place, err)
	}
	return &execTunnel{conn: conn}, nil
}

// execTunnel passes messages of v5.channel.k8s.io through unchanged.
type execTunnel struct {
	conn   *websocket.Conn
	buffer [reach.MaxMessage]byte
	piece  io.Reader // the rest of a message larger than MaxMessage
	once   sync.Once
}

func (e *execTunnel) Recv() ([]byte, error) {
	from := 1
	for {
		if e.piece == nil {
			_, reader, err := e.conn.NextReader()
			switch {
			case websocket.IsCloseError(err, websocket.CloseNormalClosure):
				e.Close(nil) // unblocks Send
				return nil, io.EOF
			case err != nil:
				return nil, broke(err)
			}
			e.piece, from = reader, 0
		}
		n, err := io.ReadFull(e.piece, e.buffer[from:])
		if err != nil {
			e.piece = nil
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, broke(err)
			}
		}
		if n > 0 {
			return e.buffer[:from+n], nil // the first byte is still the channel
		}
	}
}

func (e *execTunnel) Send(message []byte) error {
	return e.conn.WriteMessage(websocket.BinaryMessage, message)
}

// CloseSend closes the command's stdin.
func (e *execTunnel) CloseSend() error { return e.Send([]byte{reach.ChannelClose, reach.ChannelStdin}) }

func (e *execTunnel) Close(error) { e.once.Do(func() { _ = e.conn.Close() }) }

func (e *execTunnel) Cut() <-chan struct{} { return nil }

// logs opens the log of a container. The log of an earlier container, which may have been another tenant's, cannot be opened
// (I13).
func (a *APIServer) logs(ctx context.Context, place sandboxes.Place, logs *federationv1.LogsReach) (reach.Tunnel, error) {
	name, err := container(place, logs.GetContainer())
	if err != nil {
		return nil, err
	}
	options := &corev1.PodLogOptions{Container: name, Follow: logs.GetFollow(), TailLines: logs.Tail, Timestamps: logs.GetTimestamps()}
	if since := logs.GetSince(); since != nil {
		seconds := max(1, int64((since.AsDuration()+time.Second-1)/time.Second))
		options.SinceSeconds = &seconds
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &logTunnel{cancel: cancel, begun: make(chan struct{})}
	go func() {
		defer close(t.begun)
		t.stream, t.err = a.client.CoreV1().Pods(place.Pod.Namespace).GetLogs(place.Pod.Name, options).
			SetHeader("User-Agent", a.userAgent(ctx)).Stream(ctx)
		if t.err != nil {
			t.err = refused(place, t.err)
		}
	}()
	var silent <-chan time.Time
	if logs.GetFollow() {
		silent = time.After(silentAfter)
	}
	select {
	case <-t.begun:
		if t.err != nil {
			cancel()
			return nil, t.err
		}
	case <-silent: // a kubelet responds only with the first line
	}
	return t, nil
}

// silentAfter is the time after which a followed log without a line counts as started.
const silentAfter = time.Second

// logTunnel is a tunnel on which only the sandbox sends.
type logTunnel struct {
	cancel context.CancelFunc
	begun  chan struct{} // closed when the two below are set
	stream io.ReadCloser
	err    error
	buffer [reach.MaxMessage - 1]byte
}

func (t *logTunnel) Recv() ([]byte, error) {
	<-t.begun
	if t.err != nil {
		return nil, t.err
	}
	return read(t.stream, t.buffer[:])
}

func (t *logTunnel) Send([]byte) error { return nil }
func (t *logTunnel) CloseSend() error  { return nil }

func (t *logTunnel) Close(error) {
	t.cancel() // ends the stream as well
}

func (t *logTunnel) Cut() <-chan struct{} { return nil }

// read returns the available bytes. It returns an error only if there are none.
func read(from io.Reader, buffer []byte) ([]byte, error) {
	n, err := from.Read(buffer)
	for n == 0 && err == nil {
		n, err = from.Read(buffer)
	}
	switch {
	case n > 0:
		return buffer[:n], nil
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	default:
		return nil, broke(err)
	}
}

// broke returns the error for a conversation that broke off.
func broke(err error) error {
	return problem.New(problem.Unavailable, "the connection to the sandbox's Pod broke: %w", err)
}

// unanswered is the error of a request without a response of the API server, which may still carry it out.
type unanswered struct{ error }

func (u unanswered) Unwrap() error { return u.error }

// refused returns why the API server refused to start a conversation. The error has unanswered in its chain if it did not refuse.
func refused(place sandboxes.Place, err error) error {
	var failed *httpstream.UpgradeFailureError // does not unwrap
	if errors.As(err, &failed) {
		err = failed.Cause
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return problem.New(problem.Unavailable, "Pod %s was not reached: %w", place.Pod, unanswered{err}).WithRetryAfter(time.Second)
	}
	switch message := status.Status().Message; {
	case apierrors.IsNotFound(err):
		return problem.New(problem.NotFound, "the sandbox's Pod is gone: %s", message)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return problem.New(problem.Internal,
			"the worker may not reach Pod %s: %s; does its ClusterRole have pods/exec, pods/log and pods/portforward?", place.Pod, message)
	case apierrors.IsBadRequest(err):
		return problem.New(problem.Invalid, "%s", message)
	default:
		return problem.New(problem.Unavailable, "Pod %s was not reached: %s", place.Pod, message).WithRetryAfter(time.Second)
	}
}
