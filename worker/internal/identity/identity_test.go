// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	testingclock "k8s.io/utils/clock/testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link"
)

// ca is the CA of a hub.
type ca struct {
	*testing.T
	cert *x509.Certificate
	key  crypto.Signer
}

func newCA(t *testing.T) *ca {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	c := &ca{T: t, key: key}
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	c.cert = template
	c.cert = c.sign(template, key.Public(), time.Hour)
	return c
}

func (c *ca) sign(template *x509.Certificate, of crypto.PublicKey, life time.Duration) *x509.Certificate {
	c.Helper()
	var err error
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	must.Succeed(c.T, err)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(life)
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, of, c.key)
	must.Succeed(c.T, err)
	cert, err := x509.ParseCertificate(der)
	must.Succeed(c.T, err)
	return cert
}

// issue signs a request.
func (c *ca) issue(csr []byte, life time.Duration) *federationv1.Certificate {
	c.Helper()
	request, err := x509.ParseCertificateRequest(csr)
	must.Succeed(c.T, err)
	cert := c.sign(&x509.Certificate{URIs: request.URIs, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, request.PublicKey, life)
	return &federationv1.Certificate{Chain: append(pemOf(cert), pemOf(c.cert)...), Trust: c.trust()}
}

func (c *ca) trust(more ...*ca) *federationv1.Trust {
	bundle := pemOf(c.cert)
	for _, other := range more {
		bundle = append(bundle, pemOf(other.cert)...)
	}
	return &federationv1.Trust{Bundle: bundle, Hash: link.TrustHash(bundle)}
}

// hub returns the chain of a hub, and its key.
func (c *ca) hub() ([]*x509.Certificate, crypto.Signer) {
	c.Helper()
	key, _, err := link.NewKey()
	must.Succeed(c.T, err)
	cert := c.sign(&x509.Certificate{URIs: []*url.URL{link.Hub().URI()}, DNSNames: []string{"hub"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, key.Public(), time.Hour)
	return []*x509.Certificate{cert, c.cert}, key
}

func pemOf(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

// hub is one that clusters join.
type hub struct {
	federationv1.UnimplementedJoiningServer
	*ca
	address string

	mu       sync.Mutex
	requests []*federationv1.JoinRequest
	respond  func(*federationv1.JoinRequest) (*federationv1.JoinResponse, error)
}

func newHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{ca: newCA(t)}
	h.respond = func(r *federationv1.JoinRequest) (*federationv1.JoinResponse, error) {
		return &federationv1.JoinResponse{Certificate: h.issue(r.GetCsr(), time.Hour)}, nil
	}
	chain, key := h.hub()
	shown := tls.Certificate{PrivateKey: key, Certificate: [][]byte{chain[0].Raw, chain[1].Raw}}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{shown}})))
	federationv1.RegisterJoiningServer(server, h)
	h.address = testserver.ServeGRPC(t, server)
	return h
}

func (h *hub) Join(_ context.Context, r *federationv1.JoinRequest) (*federationv1.JoinResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, r)
	return h.respond(r)
}

func (h *hub) answers(respond func(*federationv1.JoinRequest) (*federationv1.JoinResponse, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.respond = respond
}

func (h *hub) asked() []*federationv1.JoinRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.requests
}

// site is a worker's end.
type site struct {
	*testing.T
	*Identity
	hub   *hub
	clock *testingclock.FakeClock
	dir   string
	dial  link.Dial
}

func newSite(t *testing.T, h *hub) *site {
	t.Helper()
	s := &site{T: t, hub: h, dir: t.TempDir(), clock: testingclock.NewFakeClock(time.Now())}
	s.dial = link.Dial{Target: h.address, ServerName: "hub", Clock: s.clock}
	s.restart()
	return s
}

// restart is another process with the same store.
func (s *site) restart() {
	s.Helper()
	var err error
	s.Identity, err = New(Options{
		ClusterID: "east", Version: "v1", Store: Directory(s.dir), TokenFile: filepath.Join(s.dir, "token"),
		ClusterUID: func(context.Context) (string, error) { return "uid-1", nil }, Clock: s.clock, Log: testlog.New(s.T),
	})
	must.Succeed(s.T, err)
	must.Succeed(s.T, s.Load(s.Context()))
}

func (s *site) invite(id string) {
	s.Helper()
	must.Succeed(s.T, os.WriteFile(filepath.Join(s.dir, "token"),
		[]byte("atoll-join.v1."+link.CAHash(s.hub.cert.Raw)+"."+id+".secret-of-"+id+"\n"), 0o600))
}

func (s *site) stored() Data {
	s.Helper()
	data, _, err := Directory(s.dir).Load(s.Context())
	must.Succeed(s.T, err)
	return data
}

func (s *site) join() {
	s.Helper()
	s.invite("i1")
	must.Succeed(s.T, s.Prepare(s.Context(), s.dial))
}

func (s *site) leaf() *x509.Certificate {
	s.Helper()
	p, err := s.Read()
	must.Succeed(s.T, err)
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	must.Succeed(s.T, err)
	return pair.Leaf
}

func TestAClusterJoinsByItsInvitation(t *testing.T) {
	h := newHub(t)
	s := newSite(t, h)
	err := s.Prepare(t.Context(), s.dial)
	if !errors.Is(err, errOut) || !strings.Contains(s.Cause(), "invite it: atollctl cluster invite east") ||
		!strings.Contains(s.Cause(), "no invitation in "+filepath.Join(s.dir, "token")) {
		t.Errorf("without an invitation: %v, cause %q", err, s.Cause())
	}
	if _, err := s.Read(); !errors.Is(err, link.ErrNoCertificate) {
		t.Errorf("it shows something: %v", err)
	}
	s.join()
	if got := h.asked(); len(got) != 1 || got[0].GetClusterId() != "east" || got[0].GetClusterUid() != "uid-1" || got[0].GetVersion() != "v1" {
		t.Errorf("the hub was asked %v", got)
	}
	if who, err := link.IdentityOf(s.leaf()); err != nil || who != link.Cluster("east") || s.Cause() != "" {
		t.Errorf("it is %v (%v), cause %q", who, err, s.Cause())
	}
	if s.Trust() != h.trust().GetHash() {
		t.Error("it trusts other CAs than the hub sent")
	}
	serial := s.leaf().SerialNumber
	s.restart()
	must.Succeed(t, s.Prepare(t.Context(), s.dial))
	if s.leaf().SerialNumber.Cmp(serial) != 0 || len(h.asked()) != 1 {
		t.Errorf("after a restart it has another certificate; the hub was asked %d times", len(h.asked()))
	}
	if got := s.stored(); len(got[NextKeyName]) > 0 || string(got[invitationName]) != "i1" {
		t.Errorf("stored are %d bytes of a next key, invitation %s", len(got[NextKeyName]), got[invitationName])
	}
	if info, err := os.Stat(Directory(s.dir).path()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v (%v)", info.Mode(), err)
	}
}

// A worker that ends between its request and the certificate asks again with the same key.
func TestAKeyIsStoredBeforeItIsUsed(t *testing.T) {
	h := newHub(t)
	s := newSite(t, h)
	s.invite("i1")
	h.answers(func(*federationv1.JoinRequest) (*federationv1.JoinResponse, error) {
		if len(s.stored()[NextKeyName]) == 0 {
			t.Error("the hub is asked before the key is stored")
		}
		return nil, status.Error(codes.Unavailable, "the response is lost")
	})
	if err := s.Prepare(t.Context(), s.dial); err == nil {
		t.Fatal("it has joined without a certificate")
	}
	s.restart()
	h.answers(func(*federationv1.JoinRequest) (*federationv1.JoinResponse, error) {
		return &federationv1.JoinResponse{RetryAfter: durationpb.New(7 * time.Second)}, nil
	})
	var retry *link.RetryAfterError
	if err := s.Prepare(t.Context(), s.dial); !errors.As(err, &retry) || retry.After != 7*time.Second {
		t.Errorf("a request that waits: %v", err)
	}
	if !strings.Contains(s.Cause(), "atollctl cluster approve east") {
		t.Errorf("the cause is %q", s.Cause())
	}
	h.answers(func(r *federationv1.JoinRequest) (*federationv1.JoinResponse, error) {
		return &federationv1.JoinResponse{Certificate: h.issue(r.GetCsr(), time.Hour)}, nil
	})
	must.Succeed(t, s.Prepare(t.Context(), s.dial))
	keys := map[string]bool{}
	for _, r := range h.asked() {
		csr, err := x509.ParseCertificateRequest(r.GetCsr())
		must.Succeed(t, err)
		keys[string(csr.RawSubjectPublicKeyInfo)] = true
	}
	if len(h.asked()) != 3 || len(keys) != 1 {
		t.Errorf("%d requests with %d keys, want 3 with one", len(h.asked()), len(keys))
	}
}

func TestANewInvitationIsTakenUp(t *testing.T) {
	h := newHub(t)
	s := newSite(t, h)
	s.join()
	first := s.leaf()
	s.Ended(status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: remote error: tls: expired certificate"`))
	if !strings.Contains(s.Cause(), "has expired") || !strings.Contains(s.Cause(), "atollctl cluster invite east") {
		t.Errorf("the cause is %q", s.Cause())
	}
	must.Succeed(t, s.Prepare(t.Context(), s.dial))
	if len(h.asked()) != 1 {
		t.Error("the used invitation was used again")
	}
	running, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(running) }()
	s.invite("i2")
	wait.For(t, 20*time.Second, "the token to be seen", func(context.Context) error {
		s.clock.Step(tokenEvery)
		select {
		case <-s.Wake():
			return nil
		default:
			return errors.New("not yet")
		}
	})
	stop()
	must.Succeed(t, <-done)
	must.Succeed(t, s.Prepare(t.Context(), s.dial))
	if s.leaf().Equal(first) || s.Cause() != "" || len(h.asked()) != 2 {
		t.Errorf("it still shows the old certificate; cause %q; the hub was asked %d times", s.Cause(), len(h.asked()))
	}
}

// A refused invitation leaves the identity that there is, and says why.
func TestARefusedInvitationChangesNothing(t *testing.T) {
	h := newHub(t)
	s := newSite(t, h)
	s.invite("i1")
	h.answers(func(*federationv1.JoinRequest) (*federationv1.JoinResponse, error) {
		return nil, status.Error(codes.PermissionDenied, "the invitation has expired")
	})
	var retry *link.RetryAfterError
	if err := s.Prepare(t.Context(), s.dial); !errors.As(err, &retry) || retry.After != link.MaxBackoff {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(s.Cause(), "the hub refused invitation i1: the invitation has expired") || strings.Contains(s.Cause(), "secret-of") {
		t.Errorf("the cause is %q", s.Cause())
	}
	must.Succeed(t, os.WriteFile(filepath.Join(s.dir, "token"), []byte("nonsense"), 0o600))
	if err := s.Prepare(t.Context(), s.dial); !errors.Is(err, link.ErrInvitation) {
		t.Errorf("a token that is none: %v", err)
	}
	other := newHub(t)
	s.hub = other // whose invitation it has, while --hub is another one
	s.invite("i2")
	if err := s.Prepare(t.Context(), s.dial); err == nil || !strings.Contains(s.Cause(), "is not the one of invitation i2") {
		t.Errorf("a hub of another CA: %v, cause %q", err, s.Cause())
	}
}

func TestACertificateOfAnotherHubOrKeyIsNotUsed(t *testing.T) {
	h, other := newHub(t), newCA(t)
	s := newSite(t, h)
	s.invite("i1")
	stranger, _, err := link.NewKey()
	must.Succeed(t, err)
	csr, err := link.NewCSR(stranger, link.Cluster("east"))
	must.Succeed(t, err)
	for name, issued := range map[string]func(*federationv1.JoinRequest) *federationv1.Certificate{
		"of another CA": func(r *federationv1.JoinRequest) *federationv1.Certificate {
			return other.issue(r.GetCsr(), time.Hour)
		},
		"of another key": func(*federationv1.JoinRequest) *federationv1.Certificate { return h.issue(csr, time.Hour) },
	} {
		h.answers(func(r *federationv1.JoinRequest) (*federationv1.JoinResponse, error) {
			return &federationv1.JoinResponse{Certificate: issued(r)}, nil
		})
		if err := s.Prepare(t.Context(), s.dial); err == nil {
			t.Errorf("a certificate %s was taken", name)
		}
		if len(s.stored()[CertName]) > 0 {
			t.Errorf("a certificate %s was stored", name)
		}
	}
}

func (s *site) renew() *x509.Certificate {
	s.Helper()
	csr, err := s.Request()
	must.Succeed(s.T, err)
	chain, _ := s.hub.hub()
	must.Succeed(s.T, s.Renew(s.Context(), s.hub.issue(csr, time.Hour), chain))
	return s.leaf()
}

func TestARenewedCertificateReplacesTheOldOneOnceItWasUsed(t *testing.T) {
	h := newHub(t)
	s := newSite(t, h)
	s.join()
	old := s.leaf()
	must.Succeed(t, s.Attached(t.Context()))
	next := s.renew()
	if next.Equal(old) || s.stored()[NextCertName] == nil {
		t.Error("the new certificate is not in use, or not stored")
	}
	s.restart()
	if !s.leaf().Equal(old) {
		t.Error("a replica that does not lead shows a certificate that no hub has accepted")
	}
	must.Succeed(t, s.Prepare(t.Context(), s.dial))
	if !s.leaf().Equal(next) {
		t.Error("the next leader does not try the new certificate")
	}
	must.Succeed(t, s.Attached(t.Context()))
	if got := s.stored(); !s.leaf().Equal(next) || len(got[NextCertName])+len(got[NextKeyName]) > 0 {
		t.Error("the old certificate was not replaced")
	}
}

func TestARefusedCertificateGivesWayToTheOldOne(t *testing.T) {
	h := newHub(t)
	s := newSite(t, h)
	s.join()
	must.Succeed(t, s.Attached(t.Context()))
	old := s.leaf()
	next := s.renew()
	s.Ended(errors.New("the hub is away"))
	if !s.leaf().Equal(next) {
		t.Error("it was given up because of a hub that is away")
	}
	s.Ended(errors.New("remote error: tls: bad certificate"))
	if !s.leaf().Equal(old) || s.Cause() != "" {
		t.Errorf("it does not go back to the old one; cause %q", s.Cause())
	}
	must.Succeed(t, s.Load(t.Context()))
	must.Succeed(t, s.Prepare(t.Context(), s.dial))
	must.Succeed(t, s.Attached(t.Context()))
	if !s.leaf().Equal(old) {
		t.Error("a refused certificate was tried again")
	}
	if again := s.renew(); again.Equal(old) || again.Equal(next) {
		t.Error("it cannot be renewed again")
	}
}

func TestOnlyCAsThatAcceptTheHubReplaceOthers(t *testing.T) {
	h, other := newHub(t), newCA(t)
	s := newSite(t, h)
	s.join()
	chain, _ := h.hub()
	if err := s.Replace(t.Context(), other.trust(), chain); !errors.Is(err, link.ErrLockedOut) || s.Trust() != h.trust().GetHash() {
		t.Errorf("CAs without the hub's own: %v", err)
	}
	both := h.trust(other)
	must.Succeed(t, s.Replace(t.Context(), both, chain))
	if s.Trust() != both.GetHash() || string(s.stored()[TrustName]) != string(both.GetBundle()) {
		t.Error("the CAs are not stored, or not in use")
	}
	if _, err := s.Read(); err != nil {
		t.Errorf("the certificate is gone: %v", err)
	}
}

func TestACertificateThatWasNotAskedForIsNotTaken(t *testing.T) {
	h := newHub(t)
	s := newSite(t, h)
	s.join()
	chain, _ := h.hub()
	key, _, err := link.NewKey()
	must.Succeed(t, err)
	csr, err := link.NewCSR(key, link.Cluster("east"))
	must.Succeed(t, err)
	if err := s.Renew(t.Context(), h.issue(csr, time.Hour), chain); !errors.Is(err, errNotAsked) {
		t.Errorf("without a request: %v", err)
	}
	_, err = s.Request()
	must.Succeed(t, err)
	if err := s.Renew(t.Context(), h.issue(csr, time.Hour), chain); !errors.Is(err, link.ErrIssued) {
		t.Errorf("of another key: %v", err)
	}
	_, err = s.Request()
	must.Succeed(t, err)
	if err := s.Renew(t.Context(), &federationv1.Certificate{Error: "not now"}, chain); err == nil || !strings.Contains(err.Error(),
		"not now") {
		t.Errorf("a refusal: %v", err)
	}
}

// I11: ten minutes change when a certificate of 30 days is renewed by ten minutes, and nothing else.
func TestI11TheWorkerAsksLaterThanTheHub(t *testing.T) {
	issued := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	month := &x509.Certificate{NotBefore: issued.Add(-time.Hour), NotAfter: issued.Add(30 * 24 * time.Hour)}
	short := &x509.Certificate{NotBefore: issued.Add(-time.Hour), NotAfter: issued.Add(100 * time.Second)}
	for name, c := range map[string]struct {
		cert     *x509.Certificate
		received time.Time
		at       time.Duration
		want     bool
	}{
		"new":                                 {month, issued, 0, false},
		"at 20 %, when the hub asks":          {month, issued, 24 * 24 * time.Hour, false},
		"at 14 %":                             {month, issued, 26 * 24 * time.Hour, true},
		"expired":                             {month, issued, 31 * 24 * time.Hour, true},
		"found at the start":                  {month, time.Time{}, 24 * 24 * time.Hour, false},
		"new, with a clock ten minutes ahead": {month, issued.Add(10 * time.Minute), 10 * time.Minute, false},
		"new, with a clock ten minutes slow":  {month, issued.Add(-10 * time.Minute), -10 * time.Minute, false},
		"short and new":                       {short, time.Time{}, 0, false},
		"short, at 80 %":                      {short, time.Time{}, 80 * time.Second, false},
		"short, at 86 %":                      {short, time.Time{}, 86 * time.Second, true},
	} {
		if got := due(c.cert, c.received, issued.Add(c.at)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestTheLoserOfTwoWritersReadsWhatTheWinnerWrote(t *testing.T) {
	h := newHub(t)
	s := newSite(t, h)
	s.join()
	late := s.Identity
	s.restart()
	must.Succeed(t, s.Prepare(t.Context(), s.dial))
	next := s.renew()
	must.Succeed(t, s.Attached(t.Context()))
	both := h.trust(newCA(t))
	chain, _ := h.hub()
	if err := late.Replace(t.Context(), both, chain); !errors.Is(err, ErrConflict) {
		t.Errorf("the late writer got %v", err)
	}
	if !s.leaf().Equal(next) || string(s.stored()[TrustName]) == string(both.GetBundle()) {
		t.Error("the late writer's data replaced the winner's")
	}
	must.Succeed(t, late.Replace(t.Context(), both, chain))
	must.Succeed(t, s.Load(t.Context()))
	if !s.leaf().Equal(next) || s.Trust() != both.GetHash() {
		t.Error("the second attempt lost something")
	}
}
