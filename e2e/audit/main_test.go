// SPDX-License-Identifier: Apache-2.0

// Package audit_test walks the public API of a hub and a worker that run, with canaries in everything that is secret. Each change has one
// line in the audit, complete, and no canary is in any log, metric, trace, event, store, backup or audit file. The cluster's own audit
// names the caller of an exec.
package audit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	logsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	tracesv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"navix.sh/atoll/api/envd"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
)

const cluster = "east"

var (
	atoll     *stack.Stack
	planes    *plane.Set
	collected collector
	tokens    map[string]string // by key: all, look
	scratch   string
)

func TestMain(m *testing.M) {
	stack.RunSuite("audit", func(ctx context.Context, dir, logDir string) (code int, err error) {
		scratch = dir
		bin := filepath.Join(dir, "bin")
		if err := stack.Build(ctx, bin, false); err != nil {
			return 1, err
		}
		if planes, err = plane.Up(ctx, plane.Options{
			LogDir: filepath.Join(dir, "planes"), AuditLog: true, Sandboxd: filepath.Join(bin, "atoll-sandboxd"),
		}, cluster); err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, planes.Down(ctx)) }()
		var keys string
		if keys, tokens, err = stack.APIKeys(ctx, bin, dir, map[string]string{
			"all": "--all --scopes=admin", "look": "--all --scopes=read",
		}); err != nil {
			return 1, err
		}
		sealing := filepath.Join(dir, "sealing.yaml")
		if out, err := exec.CommandContext(ctx, filepath.Join(bin, "atoll-hub"), "encryption-key", "new", "--name", "one", "--file",
			sealing).CombinedOutput(); err != nil {
			return 1, fmt.Errorf("making an encryption key: %w: %s", err, out)
		}
		endpoint, err := collected.serve()
		if err != nil {
			return 1, err
		}
		defer collected.server.Stop()
		if atoll, err = stack.Start(ctx, planes, stack.Options{
			BinDir: bin, LogDir: logDir, Log: os.Stderr, Invited: true, TokenFile: filepath.Join(dir, "all.token"),
			HubArgs: []string{
				"--api-keys-file=" + keys, "--encryption-key-file=" + sealing, "--otlp-endpoint=" + endpoint, "--audit=file:" + auditFile() + ",otlp",
				"--log-level=debug", "--clusters-proxy",
			},
			WorkerArgs: []string{
				"--otlp-endpoint=" + endpoint, "--log-level=debug", "--serve-kubernetes", "--audit=file:" + workerAuditFile(),
			},
		}); err != nil {
			return 1, err
		}
		if err := prepare(ctx); err != nil {
			return 1, errors.Join(err, atoll.Close())
		}
		code = m.Run()
		return code, atoll.Close()
	})
}

// prepare applies the Env, and lets the key all write Secrets of its cluster through the hub.
func prepare(ctx context.Context) error {
	direct := atoll.Cluster(cluster)
	if _, err := direct.Kubectl(ctx, "apply", "--server-side", "-f",
		filepath.Join("..", "..", "charts", "worker", "files", "optional", "kubernetes_proxy.yaml")); err != nil {
		return err
	}
	return errors.Join(stack.Apply(ctx, direct, binding), python.Apply(ctx, direct))
}

func auditFile() string { return filepath.Join(scratch, "audit", "audit.log") }

func workerAuditFile() string { return filepath.Join(scratch, "audit", "worker.log") }

const binding = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: walker, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "atoll:key:all"}]
`

var python = stack.Env{
	Name: "python", Image: "registry.example/python", Runtime: "e2b", Port: envd.Port,
	Members: []stack.Member{{Cluster: cluster, Replicas: 3}},
}

// collector keeps all that programs send it, as text.
type collector struct {
	tracesv1.UnimplementedTraceServiceServer
	server *grpc.Server

	mu     sync.Mutex
	traces strings.Builder
	logs   strings.Builder
}

func (c *collector) serve() (endpoint string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	c.server = grpc.NewServer()
	tracesv1.RegisterTraceServiceServer(c.server, c)
	logsv1.RegisterLogsServiceServer(c.server, logs{to: c})
	go func() { _ = c.server.Serve(listener) }()
	return "http://" + listener.Addr().String(), nil
}

func (c *collector) keep(to *strings.Builder, m proto.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to.WriteString(prototext.Format(m))
}

func (c *collector) text() (traces, logs string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.traces.String(), c.logs.String()
}

// Export implements the service for traces.
func (c *collector) Export(_ context.Context, r *tracesv1.ExportTraceServiceRequest) (*tracesv1.ExportTraceServiceResponse, error) {
	c.keep(&c.traces, r)
	return &tracesv1.ExportTraceServiceResponse{}, nil
}

type logs struct {
	logsv1.UnimplementedLogsServiceServer
	to *collector
}

// Export implements the service for logs.
func (l logs) Export(_ context.Context, r *logsv1.ExportLogsServiceRequest) (*logsv1.ExportLogsServiceResponse, error) {
	l.to.keep(&l.to.logs, r)
	return &logsv1.ExportLogsServiceResponse{}, nil
}
