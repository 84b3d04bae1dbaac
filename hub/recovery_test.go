// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/problem"
)

// life is one hub process after another on one data directory, each with a client.
type life struct {
	*testing.T
	options *options
	log     logr.Logger // zero: the test's
	metrics registry    // nil: a new one for each process
	address running
	hub     *hub
	stop    func()
	conn    *grpc.ClientConn
}

func (l *life) begin() {
	l.Helper()
	h := &hub{log: l.log, metrics: prometheus.NewRegistry()}
	if l.log.IsZero() {
		h.log = testlog.New(l.T)
	}
	if l.metrics != nil {
		h.metrics = l.metrics
	}
	must.Succeed(l.T, h.build(l.Context(), l.options))
	at, stop := onPorts(l.T, h)
	conn, err := grpc.NewClient(at.api, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(l.T, err)
	l.hub, l.address, l.conn = h, at, conn
	l.stop = func() {
		if err := errors.Join(conn.Close(), stop()); err != nil {
			l.Error(err)
		}
		l.stop = func() {}
	}
}

// lifeOf is a life that has not begun.
func lifeOf(t *testing.T, o *options) *life {
	l := &life{T: t, options: o, stop: func() {}}
	t.Cleanup(func() { l.stop() })
	return l
}

func newLife(t *testing.T) *life {
	l := lifeOf(t, testOptions(t))
	l.begin()
	return l
}

func (l *life) create(key string) (*sandboxv1.Sandbox, error) {
	ctx, cancel := context.WithTimeout(l.Context(), 30*time.Second)
	defer cancel()
	return sandboxv1.NewSandboxesClient(l.conn).CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		Env: "demo", ClaimKey: key, StartupTimeout: durationpb.New(20 * time.Second),
	})
}

func (l *life) attach() *east {
	l.Helper()
	authority, err := pki.New(filepath.Dir(l.options.tls.CA))
	must.Succeed(l.T, err)
	worker := attachEast(l.T, l.address.link, authority)
	waitForEnv(l.T, sandboxv1.NewEnvsClient(l.conn))
	return worker
}

// granted attaches a worker, and claims a sandbox that it grants.
func (l *life) granted(key string) *east {
	l.Helper()
	worker := l.attach()
	go func() { worker.grant(<-worker.claims) }()
	_, err := l.create(key)
	must.Succeed(l.T, err)
	return worker
}

// knows checks that the hub has the claim with the key k.
func (l *life) knows(when string) {
	l.Helper()
	claim, err := sandboxv1.NewClaimsClient(l.conn).GetClaim(l.Context(), &sandboxv1.GetClaimRequest{ClaimKey: "k"})
	if err != nil || claim.GetClusterId() != "east" {
		l.Errorf("%s the key is %v, %v", when, claim, err)
	}
}

// TestAHubThatLostItsClaimsFile returns no key before its clusters sent theirs or an operator accepts the loss, and then what
// they hold; a restart with both files intact asks no cluster.
func TestAHubThatLostItsClaimsFile(t *testing.T) {
	l := newLife(t)
	worker := l.granted("k")
	worker.stop()
	l.stop()

	l.begin()
	status, err := sandboxv1.NewHubClient(l.conn).GetHub(t.Context(), &sandboxv1.GetHubRequest{})
	if err != nil || status.GetRecovering() || status.GetReason() != "" {
		t.Errorf("after a restart with its files: %v %v", status, err)
	}
	if age := time.Since(status.GetTime().AsTime()); age < 0 || age > time.Minute ||
		!status.GetCertificateExpires().AsTime().After(time.Now()) || status.GetStoreFailure() != "" {
		t.Errorf("the hub says of itself: %v", status)
	}
	l.stop()

	must.Succeed(t, os.Remove(hubstate.Claims.Path(l.options.dataDir)))
	l.begin()
	_, err = l.create("k")
	if p := problem.FromError(err); p == nil || p.Reason != problem.Recovering || !strings.Contains(p.Message, "east") {
		t.Errorf("after the loss: %v", err)
	}
	status, err = sandboxv1.NewHubClient(l.conn).GetHub(t.Context(), &sandboxv1.GetHubRequest{})
	if err != nil || !status.GetRecovering() || status.GetReason() != "LedgerLost" || len(status.GetAwaitedClusters()) != 1 {
		t.Errorf("status %v: %v", status, err)
	}
	l.stop()
	l.begin() // still
	if _, err = l.create("k"); problem.FromError(err).Reason != problem.Recovering {
		t.Errorf("after a restart without east: %v", err)
	}
	status, err = sandboxv1.NewHubClient(l.conn).AcceptLoss(t.Context(), &sandboxv1.AcceptLossRequest{})
	if err != nil || status.GetRecovering() || !status.GetAccepted() {
		t.Errorf("accepted: %v %v", status, err)
	}
}

// TestI2AHubThatLostItsVolumeWaitsForItsClusters, like one that has lost only its ledger; another hub of the same CA is new.
func TestI2AHubThatLostItsVolumeWaitsForItsClusters(t *testing.T) {
	l := newLife(t)
	worker := l.granted("k")
	worker.stop()
	l.stop()
	must.Succeed(t, os.RemoveAll(l.options.dataDir))
	l.begin()
	if _, err := l.create("k"); problem.FromError(err).Reason != problem.Recovering || !strings.Contains(err.Error(), "east") {
		t.Errorf("I2: with nothing on its volume: %v", err)
	}
	status, err := sandboxv1.NewHubClient(l.conn).GetHub(t.Context(), &sandboxv1.GetHubRequest{})
	if err != nil || status.GetReason() != "LedgerLost" || status.GetEpoch() != 1 || len(status.GetAwaitedClusters()) != 1 {
		t.Errorf("status %v: %v", status, err)
	}
	l.stop()

	l.options.dataDir = filepath.Join(t.TempDir(), "new")
	l.begin()
	status, err = sandboxv1.NewHubClient(l.conn).GetHub(t.Context(), &sandboxv1.GetHubRequest{})
	if err != nil || status.GetRecovering() || status.GetReason() != "" {
		t.Errorf("a new hub: %v %v", status, err)
	}
}

// TestADamagedFileIsRefused with a remedy, and is not changed.
func TestADamagedFileIsRefused(t *testing.T) {
	l := newLife(t)
	l.stop()
	for _, kind := range []hubstate.Kind{hubstate.Claims, hubstate.Registry} {
		path := kind.Path(l.options.dataDir)
		whole, err := os.ReadFile(path)
		must.Succeed(t, err)
		for name, spoilt := range map[string][]byte{
			"cut off": whole[:len(whole)/2], "empty": nil, "noise": bytes.Repeat([]byte{0xa5}, len(whole)),
		} {
			must.Succeed(t, os.WriteFile(path, spoilt, 0o600))
			h := &hub{log: testlog.New(t), metrics: prometheus.NewRegistry()}
			err := h.build(t.Context(), l.options)
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "restore a backup") {
				t.Errorf("%s, %s: %v", path, name, err)
			}
			_ = h.close()
			if left, err := os.ReadFile(path); err != nil || !bytes.Equal(left, spoilt) {
				t.Errorf("%s, %s: the file was changed: %v", path, name, err)
			}
		}
		must.Succeed(t, os.WriteFile(path, whole, 0o600))
	}
	l.begin()
}

// TestABackupOfARunningHubIsRestored: the hub that starts on it detects that it is behind.
func TestABackupOfARunningHubIsRestored(t *testing.T) {
	l := newLife(t)
	worker := l.granted("k")
	archive := filepath.Join(t.TempDir(), "hub.tar.gz")
	must.Succeed(t, l.backup(archive))
	worker.stop()
	l.stop()

	dir := filepath.Join(t.TempDir(), "elsewhere")
	for _, tc := range []struct{ args, want string }{
		{"restore " + archive + " --data-dir " + dir, ""},
		{"restore " + archive + " --data-dir " + dir, "already"},
		{"restore /dev/null --force --data-dir " + dir, "archive is damaged"},
	} {
		_, err := atollHub(t, strings.Fields(tc.args)...)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v", tc.args, err)
		}
	}
	l.options.dataDir = dir
	l.begin()
	if _, err := l.create("k"); problem.FromError(err).Reason != problem.Recovering {
		t.Errorf("on a restored ledger: %v", err)
	}
	l.knows("restored")
	worker = l.attach()
	go func() { worker.grant(<-worker.claims) }()
	for err := errors.New("not yet"); err != nil && t.Context().Err() == nil; {
		if _, err = l.create("other"); err != nil && problem.FromError(err).Reason != problem.Recovering {
			t.Fatalf("with east heard: %v", err)
		}
	}
}

func (l *life) backup(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	stream, err := sandboxv1.NewHubClient(l.conn).BackupHub(l.Context(), &sandboxv1.BackupHubRequest{})
	for err == nil {
		var chunk *sandboxv1.BackupChunk
		if chunk, err = stream.Recv(); err == nil {
			_, err = f.Write(chunk.GetData())
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return f.Close()
}
