// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protowire"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/ports"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/api"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
)

// asHub makes the test binary be a hub.
const asHub = "ATOLL_TEST_AS_HUB"

// process is a hub in a process of its own, with API keys.
type process struct {
	pid            int
	api, link, ops string
}

func startProcess(t *testing.T, args ...string) process {
	t.Helper()
	o := testOptions(t)
	keys := filepath.Join(t.TempDir(), "keys.yaml")
	_, entry, err := api.NewToken(api.Key{Name: "known", AllTeams: true, AllNamespaces: true, Scopes: []api.Scope{api.ScopeClaim}})
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(keys, entry, 0o600))
	addresses, err := ports.Free(4)
	must.Succeed(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{
		"--listen", addresses[0], "--link-listen", addresses[1], "--metrics-listen", addresses[2], "--health-listen", addresses[3],
		"--data-dir", o.dataDir, "--api-keys-file", keys,
		"--tls-cert-file", o.tls.Cert, "--tls-key-file", o.tls.Key, "--tls-ca-file", o.tls.CA,
	}, args...)...)
	cmd.Env = append(os.Environ(), asHub+"=1")
	cmd.Stderr = t.Output()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() })
	p := process{cmd.Process.Pid, addresses[0], addresses[1], addresses[2]}
	wait.For(t, time.Minute, "the hub to serve", func(context.Context) error {
		resp, err := http.Get("http://" + p.api + "/healthz")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	})
	http.DefaultClient.CloseIdleConnections()
	return p
}

// peakMiB is the peak memory of the process.
func (p process) peakMiB(t *testing.T) int {
	t.Helper()
	proc, err := procfs.NewProc(p.pid)
	must.Succeed(t, err)
	status, err := proc.NewStatus()
	must.Succeed(t, err)
	if status.VmHWM == 0 {
		t.Fatal("the hub has ended")
	}
	return int(status.VmHWM >> 20)
}

// raw sends messages as they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (raw) Unmarshal(_ []byte, _ any) error { return nil }
func (raw) Name() string                    { return "proto" }

// squeezed is what gzip makes of a message.
type squeezed struct{ text []byte }

func (squeezed) Name() string { return "gzip" }
func (s squeezed) Compress(w io.Writer) (io.WriteCloser, error) {
	return nopWriteCloser{onClose: func() error { _, err := w.Write(s.text); return err }}, nil
}
func (squeezed) Decompress(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }

type nopWriteCloser struct{ onClose func() error }

func (nopWriteCloser) Write(p []byte) (int, error) { return len(p), nil }
func (n nopWriteCloser) Close() error              { return n.onClose() }

// I14: eight requests without a key took a hub from 24 MiB to 3.2 GiB.
func TestI14StrangersCostTheHubNothing(t *testing.T) {
	const much = 4<<20 - 1<<10
	hub := startProcess(t)
	before := hub.peakMiB(t)

	var text bytes.Buffer
	zip := gzip.NewWriter(&text)
	hook := protowire.AppendBytes(protowire.AppendTag(nil, 17, protowire.BytesType), nil)
	_, err := zip.Write(bytes.Repeat(hook, much/len(hook)))
	must.Succeed(t, err)
	must.Succeed(t, zip.Close())
	encoding.RegisterCompressor(squeezed{text.Bytes()})
	conn, err := grpc.NewClient(hub.api, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	defer func() { _ = conn.Close() }()
	post := "POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
	body := `{"postStartHooks":[{}` + strings.Repeat(",{}", much/3) + "]}"

	var group sync.WaitGroup
	for range 12 {
		group.Go(func() {
			err := conn.Invoke(t.Context(), sandboxv1.Sandboxes_CreateSandbox_FullMethodName, []byte("{}"), nil,
				grpc.ForceCodec(raw{}), grpc.UseCompressor("gzip"))
			if err == nil || !strings.Contains(err.Error(), "Unauthenticated") {
				t.Errorf("gRPC: %v", err)
			}
		})
	}
	for range 8 {
		group.Go(func() {
			conn, err := net.Dial("tcp", hub.api)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			// The server does not read it to its end.
			go func() { _, _ = io.WriteString(conn, post+strconv.Itoa(len(body))+"\r\n\r\n"+body) }()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // the test closes the connection
			if err != nil || resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("REST: %v %v", resp, err)
			}
		})
	}
	group.Wait()
	// Headers that do not end, on as many connections as one address may have.
	header := bytes.NewBufferString("GET / HTTP/1.1\r\n")
	for i := range 4 << 10 {
		_, _ = fmt.Fprintf(header, "%x:\n", i)
	}
	var open []net.Conn
	for range 512 {
		conn, err := net.Dial("tcp", hub.api)
		must.Succeed(t, err)
		open = append(open, conn)
		_, _ = conn.Write(header.Bytes()) // the server does not read it to its end
	}
	for _, conn := range open {
		_ = conn.Close()
	}
	floodHealth(t, hub)
	room := 48
	if raceDetector() {
		room = 512 // its shadow memory and its history of accesses are several times what they watch
	}
	if after := hub.peakMiB(t); after > before+room {
		t.Errorf("the hub went from %d MiB to %d MiB", before, after)
	} else {
		t.Logf("the hub went from %d MiB to %d MiB", before, after)
	}
}

// raceDetector reports whether this binary, which the hub's process runs as well, has the race detector.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// floodHealth begins health checks, as many as some connections may have, and ends none.
func floodHealth(t *testing.T, hub process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var group sync.WaitGroup
	for range 12 {
		conn, err := grpc.NewClient(hub.api, grpc.WithTransportCredentials(insecure.NewCredentials()))
		must.Succeed(t, err)
		defer func() { _ = conn.Close() }()
		for range 250 {
			group.Go(func() {
				stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, healthv1.Health_Check_FullMethodName, grpc.ForceCodec(raw{}))
				if err != nil {
					return
				}
				_ = stream.SendMsg(make([]byte, 200<<10)) // waits for room
				<-ctx.Done()
			})
		}
	}
	group.Wait()
}

// I14: connections without a certificate are few and short, and do not keep a worker out for longer than that.
func TestI14TheLinkBoundsStrangers(t *testing.T) {
	h := start(t, testOptions(t))
	silent := func() net.Conn {
		conn, err := net.Dial("tcp", h.link)
		must.Succeed(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	kept := make([]net.Conn, link.MaxHandshakesPerAddress)
	for i := range kept {
		kept[i] = silent()
	}
	over := silent()
	_ = over.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := over.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && (err == nil || errors.Is(err, os.ErrDeadlineExceeded)) {
		t.Errorf("one more connection than may be: %v", err)
	}
	began := time.Now()
	for _, conn := range kept {
		_ = conn.SetReadDeadline(began.Add(30 * time.Second))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a connection that shows no certificate is kept")
		}
	}
	silent()
}

// Workers that have shown their certificates do not count as unauthenticated.
func TestTheLinkLetsManyWorkersIn(t *testing.T) {
	o := testOptions(t)
	h := start(t, o)
	authority, err := pki.New(filepath.Dir(o.tls.CA))
	must.Succeed(t, err)
	files, err := authority.Cluster("east")
	must.Succeed(t, err)
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	must.Succeed(t, err)
	config := &tls.Config{
		Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"},
		InsecureSkipVerify: true, // the hub is not under test
	}
	for i := range link.MaxHandshakesPerAddress + 1 {
		conn, err := tls.Dial("tcp", h.link, config)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := conn.Read(make([]byte, 1)); err != nil { // the server's settings
			t.Fatalf("connection %d: %v", i, err)
		}
	}
}
