// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"navix.sh/atoll/api/envd"
)

// ContainerLogEnv is the environment variable that names a container's log file, for commands executed in it.
const ContainerLogEnv = "PLANE_CONTAINER_LOG"

const (
	streamIdleTimeout = time.Hour
	streamOpenTimeout = 30 * time.Second
	logPoll           = 20 * time.Millisecond
)

// kubelet serves an API server's kubelet requests for all nodes of a plane: exec, logs and port-forward. It authenticates every
// caller by certificate; because commands run as the plane's user.
type kubelet struct {
	dir    string // of containers' logs
	adopt  func(*exec.Cmd)
	daemon *daemons // nil: there are none
	pods   *kubernetes.Clientset
	lis    *trackedListener
	server *http.Server
	ctx    context.Context
	stop   context.CancelFunc
	work   sync.WaitGroup
}

func newKubelet(dir, sandboxd string, adopt func(*exec.Cmd)) (*kubelet, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening as a kubelet: %w", err)
	}
	k := &kubelet{dir: dir, adopt: adopt, lis: &trackedListener{Listener: lis, open: map[net.Conn]struct{}{}}}
	k.ctx, k.stop = context.WithCancel(context.Background())
	if sandboxd != "" {
		k.daemon = &daemons{kubelet: k, path: sandboxd, byPod: map[types.NamespacedName]*daemon{}}
	}
	return k, nil
}

func (k *kubelet) port() int { return k.lis.Addr().(*net.TCPAddr).Port }

// pod reads a Pod. A kubelet watches those of its node.
func (k *kubelet) pod(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	pod, err := k.pods.CoreV1().Pods(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading a Pod: %w", err)
	}
	return pod, nil
}

// serve serves callers with a certificate of the plane's for API servers.
func (k *kubelet) serve(certFile, keyFile string, caPEM []byte) error {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return fmt.Errorf("creating the folder of containers' logs: %w", err)
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return fmt.Errorf("reading a kubelet's certificate: %w", err)
	}
	cas := x509.NewCertPool()
	cas.AppendCertsFromPEM(caPEM)
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.exec)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.portForward)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.logs)
	k.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.TLS.PeerCertificates[0].Subject.CommonName != kubeletClient {
				http.Error(w, "not an API server", http.StatusForbidden)
				return
			}
			k.work.Add(1)
			defer k.work.Done()
			mux.ServeHTTP(w, r)
		}),
		BaseContext:       func(net.Listener) context.Context { return k.ctx },
		ReadHeaderTimeout: streamOpenTimeout,
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: cas,
	}
	go func() { _ = k.server.Serve(tls.NewListener(k.lis, config)) }()
	return nil
}

// close ends every command and connection.
func (k *kubelet) close() {
	k.stop()
	if k.server != nil {
		_ = k.server.Close()
	}
	k.lis.closeAll()
	k.work.Wait()
}

// exec runs a command on this machine.
func (k *kubelet) exec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, container{k, k.logFile(r)}, r.PathValue("pod"), "", r.PathValue("container"), r.URL.Query()["command"],
		options, streamIdleTimeout, streamOpenTimeout, remotecommand.SupportedStreamingProtocols)
}

// container executes commands as if inside.
type container struct {
	kubelet *kubelet
	log     string
}

// ExecInContainer runs a command. As with a kubelet, it keeps running after its caller disconnects, while the plane runs.
func (c container) ExecInContainer(
	ctx context.Context, _, _, _ string, argv []string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	if len(argv) == 0 {
		return errors.New("no command")
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), ContainerLogEnv+"="+c.log)
	var err error
	if tty {
		err = runOnTerminal(cmd, in, out, resize)
	} else {
		err = c.run(ctx, cmd, in, out, errOut)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

func (c container) run(ctx context.Context, cmd *exec.Cmd, in io.Reader, out, errOut io.WriteCloser) error {
	c.kubelet.adopt(cmd)
	if out != nil {
		cmd.Stdout = out
	}
	if errOut != nil {
		cmd.Stderr = errOut
	}
	if in == nil {
		if err := cmd.Start(); err != nil {
			return err
		}
		return await(ctx, cmd)
	}
	// Not Cmd.Stdin, because Wait would wait for its end.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(stdin, in)
		_ = stdin.Close()
	}()
	return await(ctx, cmd)
}

// await waits for a command, and once ctx has ended not for writes of its output: a stream of SPDY whose connection is gone may leave one
// waiting for good.
func await(ctx context.Context, cmd *exec.Cmd) error {
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(2 * cmd.WaitDelay):
		return ctx.Err()
	}
}

func runOnTerminal(cmd *exec.Cmd, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) error {
	terminal, err := pty.Start(cmd)
	if err != nil {
		return err
	}
	var mu sync.Mutex // of the terminal's end, against a change of its size
	over := false
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		_ = terminal.Close()
	}()
	if in != nil {
		go func() { _, _ = io.Copy(terminal, in) }()
	}
	go func() {
		for size := range resize {
			mu.Lock()
			if !over {
				_ = pty.Setsize(terminal, &pty.Winsize{Rows: size.Height, Cols: size.Width})
			}
			mu.Unlock()
		}
	}()
	_, _ = io.Copy(out, terminal) // ends with an error when the command has closed the other side
	return cmd.Wait()
}

// portForward uses this machine's loopback address for every Pod.
func (k *kubelet) portForward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	pod := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
	portforward.ServePortForward(w, r, forwarder{k.ctx, k.daemon, pod}, r.PathValue("pod"), "", options,
		streamIdleTimeout, streamOpenTimeout, portforward.SupportedProtocols)
}

type forwarder struct {
	ctx    context.Context
	daemon *daemons
	pod    types.NamespacedName
}

func (f forwarder) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	network, address := "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
	if port == envd.Port && f.daemon != nil {
		socket, err := f.daemon.socket(ctx, f.pod)
		if err != nil {
			return err
		}
		network, address = "unix", socket
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(f.ctx, network, address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(f.ctx, func() { _ = conn.Close() })()
	go func() {
		_, err := io.Copy(conn, stream)
		if half, ok := conn.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite()
			return
		}
		_ = conn.Close()
	}()
	_, err = io.Copy(stream, conn)
	return err
}

func (k *kubelet) logFile(r *http.Request) string {
	return filepath.Join(k.dir, r.PathValue("namespace")+"_"+r.PathValue("pod")+"_"+r.PathValue("container")+".log")
}

// logs returns a container's log file: all or the last lines, and new ones as they are written.
func (k *kubelet) logs(w http.ResponseWriter, r *http.Request) {
	file, err := os.OpenFile(k.logFile(r), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer file.Close()
	if tail, err := strconv.Atoi(r.FormValue("tailLines")); err == nil {
		if err := seekLines(file, tail); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Transfer-Encoding", "chunked")
	flusher, to := http.NewResponseController(w), io.Writer(w)
	if r.FormValue("timestamps") == "true" {
		to = &stamping{w: w, begins: true}
	}
	ticker := time.NewTicker(logPoll)
	defer ticker.Stop()
	for follow := r.FormValue("follow") == "true"; ; {
		n, err := io.Copy(to, file)
		if err != nil || !follow {
			return
		}
		if n > 0 && flusher.Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		}
	}
}

// stamping writes lines with a time before each: that of their reading, as nothing else is known.
type stamping struct {
	w      io.Writer
	begins bool // a line
}

func (s *stamping) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		if s.begins {
			if _, err := io.WriteString(s.w, time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z07:00")+" "); err != nil {
				return 0, err
			}
		}
		if _, err := s.w.Write(line); err != nil {
			return 0, err
		}
		s.begins = bytes.HasSuffix(line, []byte("\n"))
	}
	return len(p), nil
}

// seekLines seeks to the last lines of a file that is small enough to be read.
func seekLines(file *os.File, lines int) error {
	content, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	all := bytes.SplitAfter(bytes.TrimSuffix(content, []byte("\n")), []byte("\n"))
	last := all[max(0, len(all)-lines):]
	size := len(bytes.Join(last, nil))
	if size > 0 && bytes.HasSuffix(content, []byte("\n")) {
		size++
	}
	_, err = file.Seek(-int64(size), io.SeekEnd)
	return err
}

// trackedListener tracks its connections, so that those taken over by a handler can be closed.
type trackedListener struct {
	net.Listener
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

func (l *trackedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	tracked := &trackedConn{Conn: conn, listener: l}
	l.open[tracked] = struct{}{}
	return tracked, nil
}

func (l *trackedListener) closeAll() {
	_ = l.Close()
	l.mu.Lock()
	open := l.open
	l.open = map[net.Conn]struct{}{}
	l.mu.Unlock()
	for conn := range open {
		_ = conn.Close()
	}
}

type trackedConn struct {
	net.Conn
	listener *trackedListener
}

func (c *trackedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
