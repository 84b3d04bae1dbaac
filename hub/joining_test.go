// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/authority"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/link"
)

// ownCA are the options of a hub with a CA of its own.
func ownCA(t *testing.T) *options {
	t.Helper()
	return &options{
		listen: "127.0.0.1:0", dataDir: filepath.Join(t.TempDir(), "data"), retention: time.Hour,
		joining: joinOptions{approve: approveAuto, lifetime: authority.DefaultLifetime},
	}
}

func invite(t *testing.T, conn grpc.ClientConnInterface, r *sandboxv1.InviteClusterRequest) link.Invitation {
	t.Helper()
	made, err := sandboxv1.NewClustersClient(conn).InviteCluster(t.Context(), r)
	must.Succeed(t, err)
	token, err := link.ParseInvitation(made.GetToken())
	must.Succeed(t, err)
	return token
}

// joined is a worker whose certificate the hub issues.
type joined struct {
	id, uid, address string

	mu      sync.Mutex
	pem     link.PEM
	key     crypto.Signer
	keyPEM  []byte
	streams uint64
	refused *federationv1.Refused
	renewed int
	asksFor string // the cluster that its requests for renewals name; empty: its own
	said    string // why the hub did not renew
}

func newJoined(t *testing.T, id, address string) *joined {
	t.Helper()
	j := &joined{id: id, uid: id + "-uid", address: address}
	j.newKey(t)
	return j
}

func (j *joined) newKey(t *testing.T) {
	t.Helper()
	var err error
	j.key, j.keyPEM, err = link.NewKey()
	must.Succeed(t, err)
}

func (j *joined) request(t *testing.T) *federationv1.JoinRequest {
	t.Helper()
	csr, err := link.NewCSR(j.key, link.Cluster(j.id))
	must.Succeed(t, err)
	return &federationv1.JoinRequest{ClusterId: j.id, ClusterUid: j.uid, Csr: csr}
}

func (j *joined) join(t *testing.T, by link.Invitation) (*federationv1.JoinResponse, error) {
	t.Helper()
	response, chain, err := link.Dial{Target: j.address, Clock: clock.RealClock{}, Log: logr.Discard()}.Join(t.Context(), by, j.request(t))
	if err != nil {
		return nil, err
	}
	if c := response.GetCertificate(); c != nil {
		must.Succeed(t, link.VerifyIssued(c, j.key.Public(), link.Cluster(j.id), chain, time.Now()))
		j.take(c)
	}
	return response, nil
}

func (j *joined) take(c *federationv1.Certificate) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pem = link.PEM{Cert: c.GetChain(), Key: j.keyPEM, CA: c.GetTrust().GetBundle()}
}

// Read implements link.Source.
func (j *joined) Read() (link.PEM, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.pem, nil
}

func (j *joined) String() string { return "the test's certificate" }

// attach keeps a stream until the test ends, or stop is called.
func (j *joined) attach(t *testing.T) (stop func()) {
	t.Helper()
	creds, err := link.NewCredentials(j, logr.Discard())
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- link.Run(ctx, link.Dial{Target: j.address, Credentials: creds, Clock: clock.RealClock{}, Log: logr.Discard()}, j.serve)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		must.Succeed(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

// joinEast has a new worker join as east, and attach.
func joinEast(t *testing.T, conn grpc.ClientConnInterface, address string) (worker *joined, by link.Invitation, stop func()) {
	t.Helper()
	worker, by = newJoined(t, "east", address), invite(t, conn, &sandboxv1.InviteClusterRequest{Id: "east"})
	_, err := worker.join(t, by)
	must.Succeed(t, err)
	stop = worker.attach(t)
	stateOf(t, conn, "east", fresh)
	return worker, by, stop
}

func (j *joined) serve(ctx context.Context, hub federationv1.LinkClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := hub.Attach(ctx)
	if err != nil {
		return err
	}
	j.mu.Lock()
	j.streams++
	hello := &federationv1.Hello{
		Protocol: 1, ClusterUid: j.uid, Term: "t-" + j.id, Incarnation: 1, Stream: j.streams, Trust: link.TrustHash(j.pem.CA),
	}
	j.mu.Unlock()
	refused, err := introduce(stream, hello)
	if err != nil {
		return err
	}
	j.mu.Lock()
	j.refused = refused
	j.mu.Unlock()
	if refused != nil {
		return errors.New(refused.GetReason())
	}
	for {
		frame, err := stream.Recv()
		if err != nil {
			return err
		}
		again, err := j.handle(stream, frame)
		if again || err != nil {
			return err
		}
	}
}

// handle does what a worker does; again means that a stream with the new certificate is wanted.
func (j *joined) handle(stream link.Stream, frame *federationv1.HubFrame) (again bool, err error) {
	switch {
	case frame.GetTrust() != nil:
		j.mu.Lock()
		j.pem.CA = frame.GetTrust().GetBundle()
		j.mu.Unlock()
		return false, stream.Send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_TrustAck{
			TrustAck: &federationv1.TrustAck{Hash: frame.GetTrust().GetHash()},
		}})
	case frame.GetRenew() != nil:
		key, keyPEM, err := link.NewKey()
		if err != nil {
			return false, err
		}
		j.key, j.keyPEM = key, keyPEM
		j.mu.Lock()
		names := cmp.Or(j.asksFor, j.id)
		j.mu.Unlock()
		csr, err := link.NewCSR(key, link.Cluster(names))
		if err != nil {
			return false, err
		}
		return false, stream.Send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_CertificateRequest{
			CertificateRequest: &federationv1.CertificateRequest{Csr: csr},
		}})
	case frame.GetCertificate() != nil:
		if frame.GetCertificate().GetError() != "" {
			j.mu.Lock()
			j.said = frame.GetCertificate().GetError()
			j.mu.Unlock()
			return false, errors.New(frame.GetCertificate().GetError())
		}
		j.take(frame.GetCertificate())
		j.mu.Lock()
		j.renewed++
		j.mu.Unlock()
		return true, nil
	}
	return false, nil
}

func (j *joined) has() (refused *federationv1.Refused, renewed int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.refused, j.renewed
}

// fresh waits until a hub shows a cluster as attached and fresh, or as something else.
func stateOf(t *testing.T, conn grpc.ClientConnInterface, id string, is func(*sandboxv1.Cluster) bool) *sandboxv1.Cluster {
	t.Helper()
	var shown *sandboxv1.Cluster
	wait.For(t, time.Minute, "the state of a cluster", func(ctx context.Context) (err error) {
		if shown, err = sandboxv1.NewClustersClient(conn).GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: id}); err == nil && !is(shown) {
			err = fmt.Errorf("it shows %v", shown)
		}
		return err
	})
	return shown
}

func fresh(c *sandboxv1.Cluster) bool {
	return c.GetState() == sandboxv1.ClusterState_FRESH && c.GetReplica() != ""
}

func TestAClusterJoinsByAnInvitation(t *testing.T) {
	h := start(t, ownCA(t))
	conn := testserver.Dial(t, h.api)
	token := invite(t, conn, &sandboxv1.InviteClusterRequest{Id: "east", Scope: &sandboxv1.ClusterScope{Namespaces: []string{"default"}}})
	worker := newJoined(t, "east", h.link)
	_, err := worker.join(t, token)
	must.Succeed(t, err)
	worker.attach(t)
	got := stateOf(t, conn, "east", fresh)
	if got.GetUid() != "east-uid" || len(got.GetScope().GetNamespaces()) != 1 || got.GetCertificateExpires().AsTime().Before(time.Now()) {
		t.Errorf("joined as %v", got)
	}
	// The response may have been lost: the same cluster with the same key gets another certificate, and no other one does. It does not get
	// back the scope that an operator has changed since.
	clusters, later := sandboxv1.NewClustersClient(conn), &sandboxv1.ClusterScope{Namespaces: []string{"later"}}
	_, err = clusters.UpdateCluster(t.Context(), &sandboxv1.UpdateClusterRequest{Id: "east", Scope: later})
	must.Succeed(t, err)
	_, err = worker.join(t, token)
	must.Succeed(t, err)
	got, err = clusters.GetCluster(t.Context(), &sandboxv1.GetClusterRequest{Id: "east"})
	if err != nil || strings.Join(got.GetScope().GetNamespaces(), ",") != "later" {
		t.Errorf("after its invitation was used again: %v, %v", got, err)
	}
	worker.newKey(t)
	if _, err := worker.join(t, token); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("with another key: %v", err)
	}
	pki, err := sandboxv1.NewPkiClient(conn).GetPki(t.Context(), &sandboxv1.GetPkiRequest{})
	must.Succeed(t, err)
	if !pki.GetManaged() || len(pki.GetCas()) != 1 || pki.GetCas()[0].GetHash() != token.CA || len(pki.GetInvitations()) != 0 {
		t.Errorf("the CA is shown as %v", pki)
	}
}

func TestAManualApprovalHoldsACluster(t *testing.T) {
	o := ownCA(t)
	o.joining.approve = approveManual
	h := start(t, o)
	conn := testserver.Dial(t, h.api)
	clusters := sandboxv1.NewClustersClient(conn)
	for _, deny := range []bool{false, true} {
		id := map[bool]string{false: "east", true: "west"}[deny]
		token := invite(t, conn, &sandboxv1.InviteClusterRequest{Id: id, Ttl: durationpb.New(time.Minute)})
		worker := newJoined(t, id, h.link)
		for range 2 {
			response, err := worker.join(t, token)
			must.Succeed(t, err)
			if response.GetCertificate() != nil || response.GetRetryAfter().AsDuration() <= 0 {
				t.Fatalf("before the approval: %v", response)
			}
		}
		list, err := clusters.ListClusters(t.Context(), &sandboxv1.ListClustersRequest{})
		must.Succeed(t, err)
		if w := list.GetWaiting(); len(w) != 1 || w[0].GetClusterId() != id || w[0].GetUid() != id+"-uid" || w[0].GetRemote() != "127.0.0.1" {
			t.Fatalf("waiting: %v", w)
		}
		_, err = clusters.ApproveCluster(t.Context(), &sandboxv1.ApproveClusterRequest{Id: id, Deny: deny})
		must.Succeed(t, err)
		response, err := worker.join(t, token)
		if deny != (err != nil) || deny != (response.GetCertificate() == nil) {
			t.Errorf("denied %v: %v %v", deny, response, err)
		}
	}
	if _, err := clusters.ApproveCluster(t.Context(), &sandboxv1.ApproveClusterRequest{Id: "east"}); grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("approving nothing: %v", err)
	}
}

func TestARevokedClusterIsCutOffAndComesBackByAnInvitation(t *testing.T) {
	h := start(t, ownCA(t))
	conn := testserver.Dial(t, h.api)
	clusters := sandboxv1.NewClustersClient(conn)
	worker, _, stop := joinEast(t, conn, h.link)
	known := invite(t, conn, &sandboxv1.InviteClusterRequest{Id: "east"})
	never := invite(t, conn, &sandboxv1.InviteClusterRequest{Id: "mars"})
	_, err := clusters.RevokeCluster(t.Context(), &sandboxv1.RevokeClusterRequest{Id: "mars"})
	must.Succeed(t, err)
	if _, err := newJoined(t, "mars", h.link).join(t, never); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("a cluster that never joined, with its withdrawn invitation: %v", err)
	}
	_, err = clusters.RevokeCluster(t.Context(), &sandboxv1.RevokeClusterRequest{Id: "east"})
	must.Succeed(t, err)
	began := time.Now() // the revocation has been written, which takes as long as the disk does
	stateOf(t, conn, "east", func(c *sandboxv1.Cluster) bool { return c.GetReplica() == "" })
	if took := time.Since(began); took > time.Second {
		t.Errorf("the stream lasted %s more", took)
	}
	wait.For(t, time.Minute, "the refusal", func(context.Context) error {
		if refused, _ := worker.has(); refused.GetReason() != "Revoked" || !strings.Contains(refused.GetMessage(), "invite") {
			return fmt.Errorf("refused with %v", refused)
		}
		return nil
	})
	stop()
	token := invite(t, conn, &sandboxv1.InviteClusterRequest{Id: "east"})
	if _, err := worker.join(t, token); grpcstatus.Code(err) != codes.FailedPrecondition {
		t.Errorf("with the revoked key: %v", err)
	}
	worker.newKey(t)
	if _, err := worker.join(t, known); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("with an invitation from before the revocation: %v", err)
	}
	token = invite(t, conn, &sandboxv1.InviteClusterRequest{Id: "east"})
	_, err = worker.join(t, token)
	must.Succeed(t, err)
	worker.attach(t)
	stateOf(t, conn, "east", fresh)
}

// TestTheCAIsRotated with an attached cluster, which renews its certificate and serves on.
func TestTheCAIsRotated(t *testing.T) {
	o := ownCA(t)
	o.audit = audit.Flags{To: []string{"file"}, Megabytes: 4, Files: 1, Age: time.Hour}
	h := start(t, o)
	conn := testserver.Dial(t, h.api)
	worker, token, _ := joinEast(t, conn, h.link)
	ca := sandboxv1.NewPkiClient(conn)
	for range 2 {
		_, err := ca.RotateCa(t.Context(), &sandboxv1.RotateCaRequest{})
		must.Succeed(t, err)
		wait.For(t, time.Minute, "the rotation", func(ctx context.Context) error {
			s, err := ca.GetPki(ctx, &sandboxv1.GetPkiRequest{})
			if err == nil && s.GetStep() != sandboxv1.RotationStep_STABLE {
				err = fmt.Errorf("step %s waits for %v", s.GetStep(), s.GetWaitingFor())
			}
			return err
		})
	}
	if _, renewed := worker.has(); renewed != 2 {
		t.Errorf("the certificate was renewed %d times", renewed)
	}
	stateOf(t, conn, "east", fresh)
	s, err := ca.GetPki(t.Context(), &sandboxv1.GetPkiRequest{})
	must.Succeed(t, err)
	if len(s.GetCas()) != 1 || s.GetCas()[0].GetHash() == token.CA || !s.GetCas()[0].GetSigns() {
		t.Errorf("afterwards %v", s)
	}
	audited(t, o, "join ok east", 1)
	audited(t, o, "renew ok east", 2)
}

// audited waits until the audit has so many lines of a verb, an outcome and a cluster.
func audited(t *testing.T, o *options, line string, want int) {
	t.Helper()
	wait.For(t, time.Minute, "the audit", func(context.Context) error {
		file, err := os.Open(filepath.Join(o.dataDir, "audit", "audit.log"))
		if err != nil {
			return err
		}
		defer file.Close()
		n, seen := 0, []string{}
		_, err = audit.Read(file, func(e audit.Event) error {
			text := fmt.Sprintf("%s %s %s", e.Verb, e.Outcome, e.Cluster)
			if seen = append(seen, text); text == line && e.Who.Name == "east" && e.From.Address == "127.0.0.1" {
				n++
			}
			return nil
		})
		return errors.Join(err, wait.If(n == want, seen))
	})
}

// TestI12ARenewalNamesItsClusterAlone: a request for another name is refused, with a line of audit, and the cluster serves on.
func TestI12ARenewalNamesItsClusterAlone(t *testing.T) {
	o := ownCA(t)
	o.audit = audit.Flags{To: []string{"file"}, Megabytes: 4, Files: 1, Age: time.Hour}
	h := start(t, o)
	conn := testserver.Dial(t, h.api)
	worker := newJoined(t, "east", h.link)
	_, err := worker.join(t, invite(t, conn, &sandboxv1.InviteClusterRequest{Id: "east"}))
	must.Succeed(t, err)
	worker.asksFor = "west"
	worker.attach(t)
	stateOf(t, conn, "east", fresh)
	_, err = sandboxv1.NewPkiClient(conn).RotateCa(t.Context(), &sandboxv1.RotateCaRequest{})
	must.Succeed(t, err)
	wait.For(t, time.Minute, "the refusal", func(context.Context) error {
		worker.mu.Lock()
		defer worker.mu.Unlock()
		return wait.If(strings.Contains(worker.said, "cluster/west"), worker.said)
	})
	if _, renewed := worker.has(); renewed != 0 {
		t.Error("it got a certificate")
	}
	worker.mu.Lock()
	worker.asksFor = ""
	worker.mu.Unlock()
	wait.For(t, time.Minute, "a renewal", func(context.Context) error {
		_, renewed := worker.has()
		return wait.If(renewed > 0, renewed)
	})
	audited(t, o, "renew ok east", 1)
	audited(t, o, "renew refused east", 1)
}

// TestASkipNamesItsStep: a call that is late, or repeated after its step, skips no other one.
func TestASkipNamesItsStep(t *testing.T) {
	h := start(t, ownCA(t))
	conn := testserver.Dial(t, h.api)
	_, _, stop := joinEast(t, conn, h.link)
	stop() // a rotation waits for it, for it may be back in a moment
	ca := sandboxv1.NewPkiClient(conn)
	skip := func(step sandboxv1.RotationStep) (*sandboxv1.PkiStatus, error) {
		return ca.RotateCa(t.Context(), &sandboxv1.RotateCaRequest{SkipWaiting: true, Step: step})
	}
	refused := func(step sandboxv1.RotationStep, says string) {
		t.Helper()
		if _, err := skip(step); grpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", step, err)
		}
	}
	refused(sandboxv1.RotationStep_DISTRIBUTING, "now STABLE")
	s, err := ca.RotateCa(t.Context(), &sandboxv1.RotateCaRequest{})
	must.Succeed(t, err)
	if s.GetStep() != sandboxv1.RotationStep_DISTRIBUTING || s.GetCertificateLifetime().AsDuration() != authority.DefaultLifetime {
		t.Errorf("the rotation is %v", s)
	}
	refused(sandboxv1.RotationStep_ROTATION_STEP_UNSPECIFIED, "DISTRIBUTING, RENEWING or DROPPING")
	refused(sandboxv1.RotationStep_STABLE, "DISTRIBUTING, RENEWING or DROPPING")
	refused(sandboxv1.RotationStep_RENEWING, "now DISTRIBUTING")
	_, err = skip(sandboxv1.RotationStep_DISTRIBUTING)
	must.Succeed(t, err)
	wait.For(t, time.Minute, "the next step", func(ctx context.Context) error {
		now, err := ca.GetPki(ctx, &sandboxv1.GetPkiRequest{})
		return errors.Join(err, wait.If(now.GetStep() == sandboxv1.RotationStep_RENEWING, now))
	})
	refused(sandboxv1.RotationStep_DISTRIBUTING, "now RENEWING")
	if s, err = ca.GetPki(t.Context(), &sandboxv1.GetPkiRequest{}); err != nil || s.GetStep() != sandboxv1.RotationStep_RENEWING {
		t.Errorf("a late call skipped a step: %v %v", s, err)
	}
	if _, err := ca.RotateCa(t.Context(), &sandboxv1.RotateCaRequest{Step: sandboxv1.RotationStep_RENEWING}); err == nil {
		t.Error("a step without skip_waiting is taken")
	}
}
