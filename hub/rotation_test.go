// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/etcdtest"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/ports"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/authority"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/problem"
)

// killable is a hub with a CA of its own, in a process that is started again on the same ports and data.
type killable struct {
	*testing.T
	name         string
	address      running
	gossip, peer string
	args         []string
	cmd          *exec.Cmd
	conn         *grpc.ClientConn
}

func newKillable(t *testing.T, name string, args ...string) *killable {
	t.Helper()
	free, err := ports.Free(6)
	must.Succeed(t, err)
	k := &killable{T: t, name: name, address: running{api: free[0], link: free[1], metrics: free[2], health: free[3]}, gossip: free[4],
		peer: free[5]}
	k.args = append([]string{
		"--listen=" + free[0], "--link-listen=" + free[1], "--metrics-listen=" + free[2], "--health-listen=" + free[3],
		"--data-dir=" + filepath.Join(t.TempDir(), name),
	}, args...)
	t.Cleanup(k.kill)
	return k
}

func (k *killable) start() {
	k.Helper()
	k.cmd = exec.Command(os.Args[0], k.args...)
	k.cmd.Env = append(os.Environ(), asHub+"=1")
	k.cmd.Stderr = k.Output()
	must.Succeed(k.T, k.cmd.Start())
	wait.For(k.T, time.Minute, k.name+" to serve", func(context.Context) error {
		response, err := http.Get("http://" + k.address.health + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		return wait.If(response.StatusCode == http.StatusOK, response.Status)
	})
	http.DefaultClient.CloseIdleConnections()
	var err error
	k.conn, err = grpc.NewClient(k.address.api, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(k.T, err)
}

// kill ends the process as kill -9 does.
func (k *killable) kill() {
	if k.cmd == nil {
		return
	}
	if k.conn != nil {
		_ = k.conn.Close()
	}
	_ = k.cmd.Process.Kill()
	_ = k.cmd.Wait()
	k.cmd, k.conn = nil, nil
}

// hasStream reports whether a cluster is attached. It need not be fresh: the test's worker sends no heartbeats.
func hasStream(c *sandboxv1.Cluster) bool { return c.GetReplica() != "" }

// at waits until a rotation is at a step and waits for some clusters alone, and returns the CA that signs and all CAs.
func (k *killable) at(step sandboxv1.RotationStep, waitsFor ...string) (signs string, cas []string) {
	k.Helper()
	wait.For(k.T, time.Minute, fmt.Sprintf("%s at %s", step, k.name), func(ctx context.Context) error {
		s, err := sandboxv1.NewPkiClient(k.conn).GetPki(ctx, &sandboxv1.GetPkiRequest{})
		signs, cas = "", nil
		for _, ca := range s.GetCas() {
			if cas = append(cas, ca.GetHash()); ca.GetSigns() {
				signs = ca.GetHash()
			}
		}
		return errors.Join(err, wait.If(s.GetStep() == step && slices.Equal(s.GetWaitingFor(), waitsFor), s))
	})
	return signs, cas
}

func (k *killable) rotate(skip sandboxv1.RotationStep) {
	k.Helper()
	_, err := sandboxv1.NewPkiClient(k.conn).RotateCa(k.Context(), &sandboxv1.RotateCaRequest{
		SkipWaiting: skip != sandboxv1.RotationStep_ROTATION_STEP_UNSPECIFIED, Step: skip,
	})
	must.Succeed(k.T, err)
}

// joins has east attached until the test ends, and west away, for which each step waits until it is skipped.
func (k *killable) joins(links string) (east *joined) {
	k.Helper()
	for _, id := range []string{"west", "east"} {
		east = newJoined(k.T, id, k.address.link)
		_, err := east.join(k.T, invite(k.T, k.conn, &sandboxv1.InviteClusterRequest{Id: id}))
		must.Succeed(k.T, err)
		east.address = links
		stop := east.attach(k.T)
		stateOf(k.T, k.conn, id, fresh)
		if id == "west" {
			stop()
		}
	}
	return east
}

var steps = []sandboxv1.RotationStep{
	sandboxv1.RotationStep_DISTRIBUTING, sandboxv1.RotationStep_RENEWING, sandboxv1.RotationStep_DROPPING,
}

// TestARotationOutlivesAKilledHubAtEachStep: a process that is killed in a step, and after its skip, goes on where it was.
func TestARotationOutlivesAKilledHubAtEachStep(t *testing.T) {
	hub := newKillable(t, "hub")
	hub.start()
	east := hub.joins(hub.address.link)
	before, _ := hub.at(sandboxv1.RotationStep_STABLE)
	hub.rotate(0)
	for _, step := range steps {
		hub.at(step, "west") // east has done its part
		hub.kill()
		hub.start()
		signs, cas := hub.at(step, "west")
		if len(cas) != 2 || (signs == before) != (step == sandboxv1.RotationStep_DISTRIBUTING) {
			t.Errorf("at %s %s of %v signs", step, signs, cas)
		}
		stateOf(t, hub.conn, "east", fresh)
		hub.rotate(step)
		hub.kill()
		hub.start()
	}
	after, cas := hub.at(sandboxv1.RotationStep_STABLE)
	if after == before || len(cas) != 1 {
		t.Errorf("afterwards %s of %v signs", after, cas)
	}
	stateOf(t, hub.conn, "east", fresh)
	if refused, renewed := east.has(); renewed == 0 || refused != nil {
		t.Errorf("east was renewed %d times, and refused with %v", renewed, refused)
	}
}

// TestReplicasCarryOnARotation: the replica that drives it is killed, and another one goes on; twice.
func TestReplicasCarryOnARotation(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{TLS: true})
	store := []string{
		"--store=etcd:" + strings.Join(e.Endpoints(), ","),
		"--etcd-cert-file=" + e.Files.Cert, "--etcd-key-file=" + e.Files.Key, "--etcd-ca-file=" + e.Files.CA,
	}
	replicas, join, links := []*killable{}, []string{}, []string{}
	for _, name := range []string{"a", "b", "c"} {
		k := newKillable(t, name, append(slices.Clone(store), "--replica-name="+name)...)
		k.args = append(k.args, "--peer-listen="+k.peer, "--gossip-listen="+k.gossip)
		replicas, join, links = append(replicas, k), append(join, k.gossip), append(links, k.address.link)
	}
	for i, k := range replicas {
		k.args = append(k.args, "--join="+strings.Join(slices.Delete(slices.Clone(join), i, i+1), ","))
		k.start() // a is the first, and so the one that drives
	}
	a, b, c := replicas[0], replicas[1], replicas[2]
	east := a.joins(strings.Join(links, ","))
	before, _ := a.at(sandboxv1.RotationStep_STABLE)
	b.rotate(0)
	for _, k := range replicas {
		k.at(sandboxv1.RotationStep_DISTRIBUTING, "west")
	}
	a.kill()
	b.rotate(sandboxv1.RotationStep_DISTRIBUTING)
	for _, k := range []*killable{b, c} {
		if signs, cas := k.at(sandboxv1.RotationStep_RENEWING, "west"); signs == before || len(cas) != 2 {
			t.Errorf("%s: %s of %v signs", k.name, signs, cas)
		}
	}
	a.start()
	b.kill()
	c.rotate(sandboxv1.RotationStep_RENEWING)
	c.at(sandboxv1.RotationStep_DROPPING, "west")
	a.rotate(sandboxv1.RotationStep_DROPPING)
	b.start()
	var signs []string
	for _, k := range replicas {
		after, cas := k.at(sandboxv1.RotationStep_STABLE)
		if signs = append(signs, after); after == before || len(cas) != 1 || after != signs[0] {
			t.Errorf("%s: afterwards %s of %v signs", k.name, after, cas)
		}
		stateOf(t, k.conn, "east", hasStream)
	}
	if _, renewed := east.has(); renewed == 0 {
		t.Error("east was not renewed")
	}
}

// signer is the CA that signs.
func (l *life) signer() string {
	l.Helper()
	s, err := sandboxv1.NewPkiClient(l.conn).GetPki(l.Context(), &sandboxv1.GetPkiRequest{})
	must.Succeed(l.T, err)
	for _, ca := range s.GetCas() {
		if ca.GetSigns() {
			return ca.GetHash()
		}
	}
	return ""
}

// renews rotates the CA, and waits until a worker that is attached has another certificate of it.
func (l *life) renews(worker *joined) {
	l.Helper()
	_, before := worker.has()
	_, err := sandboxv1.NewPkiClient(l.conn).RotateCa(l.Context(), &sandboxv1.RotateCaRequest{})
	must.Succeed(l.T, err)
	l.renewed(worker, before)
}

func (l *life) renewed(worker *joined, before int) {
	l.Helper()
	wait.For(l.T, time.Minute, "a renewal", func(ctx context.Context) error {
		s, err := sandboxv1.NewPkiClient(l.conn).GetPki(ctx, &sandboxv1.GetPkiRequest{})
		_, n := worker.has()
		return errors.Join(err, wait.If(n > before && s.GetStep() == sandboxv1.RotationStep_STABLE, s))
	})
}

// TestTheCAOutlivesTheDataDirectory by the copy of the registry: a worker attaches with the certificate that it had, is renewed, and an
// open invitation is gone.
func TestTheCAOutlivesTheDataDirectory(t *testing.T) {
	l := lifeOf(t, ownCA(t))
	l.options.registryCopy = "file:" + filepath.Join(t.TempDir(), "copy.json")
	l.begin()
	worker, _, stop := joinEast(t, l.conn, l.address.link)
	open, before := invite(t, l.conn, &sandboxv1.InviteClusterRequest{Id: "west"}), l.signer()
	stop()
	l.stop()
	must.Succeed(t, os.RemoveAll(l.options.dataDir))

	l.begin()
	if after := l.signer(); after != before || after != open.CA {
		t.Errorf("CA %s signs, before it was %s", after, before)
	}
	worker.address = l.address.link
	worker.attach(t)
	stateOf(t, l.conn, "east", hasStream)
	west := newJoined(t, "west", l.address.link)
	if _, err := west.join(t, open); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("by an invitation from before the loss: %v", err)
	}
	_, err := west.join(t, invite(t, l.conn, &sandboxv1.InviteClusterRequest{Id: "west"}))
	must.Succeed(t, err)
	l.renews(worker)
}

// writeIntermediate writes an intermediate CA of a root to files.
func writeIntermediate(t *testing.T, root *pki.CA, rootKey crypto.Signer, o *options, at time.Time) (hash string) {
	t.Helper()
	key, keyPEM, err := link.NewKey()
	must.Succeed(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(at.UnixNano()), Subject: pkix.Name{CommonName: "atoll " + at.String()}, NotBefore: at,
		NotAfter: at.Add(48 * time.Hour),
		IsCA:     true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}, root.Certificate(), key.Public(), rootKey)
	must.Succeed(t, err)
	dir := t.TempDir()
	o.joining.caCert, o.joining.caKey = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	chain := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), root.PEM()...)
	must.Succeed(t, errors.Join(os.WriteFile(o.joining.caCert, chain, 0o600), os.WriteFile(o.joining.caKey, keyPEM, 0o600)))
	return link.CAHash(der)
}

// TestAnOperatorsIntermediateSigns: a worker joins by it, and is renewed by its successor, to which the hub rotates by itself.
func TestAnOperatorsIntermediateSigns(t *testing.T) {
	root, err := pki.NewCA("the operator's root", time.Now())
	must.Succeed(t, err)
	rootPEM, err := root.KeyPEM()
	must.Succeed(t, err)
	block, _ := pem.Decode(rootPEM)
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	must.Succeed(t, err)
	rootKey := parsed.(crypto.Signer)

	l := lifeOf(t, ownCA(t))
	first := writeIntermediate(t, root, rootKey, l.options, time.Now().Add(-2*time.Hour))
	l.begin()
	worker, token, stop := joinEast(t, l.conn, l.address.link)
	if signs := l.signer(); signs != first || token.CA != first {
		t.Errorf("CA %s signs, the token names %s, want %s", signs, token.CA, first)
	}
	if _, err := sandboxv1.NewPkiClient(l.conn).RotateCa(t.Context(), &sandboxv1.RotateCaRequest{}); problem.FromError(err) == nil ||
		problem.FromError(err).Reason != problem.Misconfigured || !strings.Contains(err.Error(), authority.ErrGiven.Error()) {
		t.Errorf("a rotation by hand: %v", err)
	}
	stop()
	l.stop()

	second := writeIntermediate(t, root, rootKey, l.options, time.Now().Add(-time.Hour))
	_, before := worker.has()
	l.begin()
	worker.address = l.address.link
	worker.attach(t)
	l.renewed(worker, before)
	if signs := l.signer(); signs != second {
		t.Errorf("CA %s signs, want the newer one, %s", signs, second)
	}
	stateOf(t, l.conn, "east", fresh)
}

// TestAnEncryptedHubKeepsNoKeyInClear: its data directory has the CA's key encrypted alone; without an encryption key it has it in clear,
// so the check can fail.
func TestAnEncryptedHubKeepsNoKeyInClear(t *testing.T) {
	inClear := base64.StdEncoding.EncodeToString([]byte("-----BEGIN PRIVATE KEY-----"))[:36] // as JSON has bytes
	for _, encrypted := range []bool{false, true} {
		l := lifeOf(t, ownCA(t))
		if encrypted {
			l.options.encryptionKeys = filepath.Join(t.TempDir(), "keys.yaml")
			writeKeyFile(t, l.options.encryptionKeys, keyEntry(t, "a"))
		}
		l.begin()
		invite(t, l.conn, &sandboxv1.InviteClusterRequest{Id: "east"}) // before which a copy is written, if there is one
		l.stop()
		if tells := tellsDir(t, l.options.dataDir, inClear); tells == encrypted {
			t.Errorf("encrypted=%t: in clear: %t", encrypted, tells)
		}
	}
}
