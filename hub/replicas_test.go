// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/etcdtest"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/reach"
)

// one of several replicas, in this process.
type oneOf struct {
	*hub
	address running
	conn    *grpc.ClientConn
	stop    func()
}

// startReplicas starts replicas on an etcd that find each other.
func startReplicas(t *testing.T, names ...string) (map[string]*oneOf, *pki.Authority) {
	t.Helper()
	l := onEtcd(t, etcdtest.Start(t, etcdtest.Options{TLS: true}))
	replicas := map[string]*oneOf{}
	var join []string
	for _, name := range names {
		o := *l.options
		o.dataDir = filepath.Join(t.TempDir(), name)
		o.replicas = replicaOptions{name: name, peerListen: "127.0.0.1:0", gossipListen: "127.0.0.1:0", join: join}
		must.Succeed(t, o.replicas.validate(true))
		r := &oneOf{hub: &hub{log: testlog.New(t).WithName(name), metrics: prometheus.NewRegistry()}}
		must.Succeed(t, r.build(t.Context(), &o))
		join = append(join, r.members.Address())
		at, stop := onPorts(t, r.hub)
		conn, err := grpc.NewClient(at.api, grpc.WithTransportCredentials(insecure.NewCredentials()))
		must.Succeed(t, err)
		r.address, r.conn = at, conn
		r.stop = func() {
			if err := errors.Join(conn.Close(), stop()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			r.stop = func() {}
		}
		t.Cleanup(func() { r.stop() })
		replicas[name] = r
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	authority, err := pki.New(filepath.Dir(l.options.tls.CA))
	must.Succeed(t, err)
	return replicas, authority
}

// attachedAt waits until a replica shows where a cluster is attached.
func (r *oneOf) attachedAt(t *testing.T, cluster string, not string) (replica string) {
	t.Helper()
	wait.For(t, time.Minute, "a cluster", func(ctx context.Context) error {
		shown, err := sandboxv1.NewClustersClient(r.conn).GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: cluster})
		replica = shown.GetReplica()
		if err != nil || replica == "" || replica == not || shown.GetState() != sandboxv1.ClusterState_FRESH || shown.GetIdle() != 3 {
			return fmt.Errorf("%s shows %v, %w", r.replica, shown, err)
		}
		return nil
	})
	return replica
}

// TestAnyReplicaServesEveryCluster: claims, reads, lists, conversations, watches and releases at replicas to which the cluster is not
// attached; and after the one to which it was has ended.
func TestAnyReplicaServesEveryCluster(t *testing.T) {
	replicas, authority := startReplicas(t, "a", "b", "c")
	files, err := authority.Cluster("east")
	must.Succeed(t, err)
	links := make([]string, 0, 3)
	for _, r := range replicas {
		links = append(links, r.address.link)
	}
	worker := attachEast(t, strings.Join(links, ","), authority)
	at := replicas["a"].attachedAt(t, "east", "")
	worker.serveReach(files, replicas[at].address.link)
	for name, r := range replicas {
		if got := r.attachedAt(t, "east", ""); got != at {
			t.Errorf("%s says that east is attached to %s, and a to %s", name, got, at)
		}
		r.serves(t, name)
		if name != at {
			r.reaches(t)
		}
	}
	_, listed := get(t, "http://"+replicas["c"].address.api+"/v1/replicas")
	if strings.Count(listed, `"reachable":true`) != 3 || strings.Count(listed, `"clusters":1`) != 1 ||
		strings.Count(listed, `"self":true`) != 1 {
		t.Errorf("replicas %s", listed)
	}
	if _, got := get(t, "http://"+replicas["b"].address.health+"/readyz"); got != "ok\n" {
		t.Errorf("readyz %q", got)
	}
	replicas[at].stop()
	for name, r := range replicas {
		if name != at {
			r.attachedAt(t, "east", at)
			r.serves(t, name+" later")
		}
	}
}

// serves claims with and without a key, and reads and releases what it got.
func (r *oneOf) serves(t *testing.T, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	hub := sandboxv1.NewSandboxesClient(r.conn)
	for _, key := range []string{"", key} {
		s, err := hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
			Env: "demo", ClaimKey: key, StartupTimeout: durationpb.New(30 * time.Second),
		})
		if err != nil || s.GetClusterId() != "east" {
			t.Fatalf("a claim with key %q at %s: %v, %v", key, r.replica, s, err)
		}
		if s, err = hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: s.GetId()}); err != nil || s.GetPhase() != sandboxv1.Phase_RUNNING {
			t.Errorf("a read at %s: %v, %v", r.replica, s, err)
		}
	}
	list, err := hub.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{})
	if err != nil || len(list.GetSandboxes()) != 1 || len(list.GetUnreachableClusters()) != 0 {
		t.Errorf("a list at %s: %v, %v", r.replica, list, err)
	}
}

// reaches runs a command in a sandbox, and watches.
func (r *oneOf) reaches(t *testing.T) {
	t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{reach.ExecProtocol}, HandshakeTimeout: 20 * time.Second}
	conn, response, err := dialer.DialContext(t.Context(), fmt.Sprintf("ws://%s/v1/sandboxes/%s/exec?command=sh", r.address.api,
		sandboxID("red", 1)), nil)
	must.Succeed(t, err)
	defer response.Body.Close()
	defer conn.Close()
	if _, message, err := conn.ReadMessage(); err != nil || !strings.HasSuffix(string(message), "hello") {
		t.Errorf("exec at %s: %q, %v", r.replica, message, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watch, err := sandboxv1.NewSandboxesClient(r.conn).WatchSandboxes(ctx, &sandboxv1.WatchSandboxesRequest{})
	must.Succeed(t, err)
	for {
		event, err := watch.Recv()
		must.Succeed(t, err)
		if event.GetSandbox().GetId() == sandboxID("red", 1) {
			return
		}
	}
}
