// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/worker/internal/identity"
)

// read returns the content of a file.
func (w *world) read(path string) []byte {
	w.Helper()
	content, err := os.ReadFile(path)
	w.Must(err)
	return content
}

// leadIssued starts a worker whose certificate, as if the hub had issued it, is in its Secret.
func (w *world) leadIssued() (*worker, *identity.Identity) {
	w.Helper()
	own := w.newIdentity()
	return w.leadIdentity(own), own
}

func (w *world) leadIdentity(own interface {
	Identity
	link.Source
}) *worker {
	w.Helper()
	return w.leadWith(clusterID, func(o *Options) {
		o.Identity, o.Hub.Credentials = own, link.AwaitCredentials(own, logr.Discard())
	})
}

// newIdentity stores a certificate in the worker's Secret, and reads it.
func (w *world) newIdentity() *identity.Identity {
	return w.newIdentityOn(func(s identity.Store) identity.Store { return s })
}

func (w *world) newIdentityOn(with func(identity.Store) identity.Store) *identity.Identity {
	w.Helper()
	files, err := w.ca.Cluster(clusterID)
	w.Must(err)
	name := types.NamespacedName{Namespace: w.Namespace, Name: identity.SecretName}
	w.Must(w.Live.Create(w.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Labels: map[string]string{"kept": "yes"}},
		Data: map[string][]byte{
			identity.KeyName: w.read(files.Key), identity.CertName: w.read(files.Cert), identity.TrustName: w.read(files.CA),
		},
	}))
	own, err := identity.New(identity.Options{
		ClusterID: clusterID, Store: with(identity.Secret{Client: w.Live, Reader: w.Live, Name: name}),
		ClusterUID: func(context.Context) (string, error) { return "uid", nil }, Clock: clock.RealClock{}, Log: testlog.New(w.T),
	})
	w.Must(err)
	w.Must(own.Load(w.Context()))
	return own
}

// ordered records the order of calls.
type ordered struct {
	*identity.Identity
	mu    sync.Mutex
	calls []string
}

func (o *ordered) record(call string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, call)
}

func (o *ordered) Attached(ctx context.Context) error {
	o.record("Attached")
	return o.Identity.Attached(ctx)
}

func (o *ordered) Request() ([]byte, error) {
	o.record("Request")
	return o.Identity.Request()
}

func (w *world) secret() *corev1.Secret {
	w.Helper()
	secret := &corev1.Secret{}
	w.Must(w.Live.Get(w.Context(), types.NamespacedName{Namespace: w.Namespace, Name: identity.SecretName}, secret))
	return secret
}

// renew has the worker request another certificate.
func (s *session) renew() *federationv1.CertificateRequest {
	s.Helper()
	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Renew{Renew: &federationv1.RenewCertificate{Reason: "it ends"}}})
	return s.next("request", func(f *federationv1.WorkerFrame) bool { return f.GetCertificateRequest() != nil }).GetCertificateRequest()
}

// issue signs a request with the world's CA.
func (w *world) issue(request *federationv1.CertificateRequest, bundle []byte) *federationv1.Certificate {
	w.Helper()
	csr, err := x509.ParseCertificateRequest(request.GetCsr())
	w.Must(err)
	ca, err := tls.LoadX509KeyPair(w.ca.CAFile(), filepath.Join(filepath.Dir(w.ca.CAFile()), "ca.key"))
	w.Must(err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	w.Must(err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, URIs: csr.URIs, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca.Leaf, csr.PublicKey, ca.PrivateKey)
	w.Must(err)
	return &federationv1.Certificate{Chain: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Trust: trustOf(bundle)}
}

func trustOf(bundle []byte) *federationv1.Trust {
	return &federationv1.Trust{Bundle: bundle, Hash: link.TrustHash(bundle)}
}

// The hub changes the CAs that a worker trusts, and renews its certificate: the calls under way end, the stream moves to the new
// certificate, and the old one goes once that was used.
func TestTheHubReplacesTrustAndCertificate(t *testing.T) {
	w := newWorld(t)
	w.makeEnv("py", 1)
	_, own := w.leadIssued()
	s := w.hub.session()
	w.hub.shows("py", 1)
	ours := w.read(w.ca.CAFile())
	if got := s.hello.GetTrust(); got != link.TrustHash(ours) {
		t.Errorf("the Hello names the trust %q", got)
	}
	another, err := pki.New(filepath.Join(t.TempDir(), "other"))
	w.Must(err)
	other := w.read(another.CAFile())
	both := append(bytes.Clone(ours), other...)

	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Trust{Trust: trustOf(both)}})
	ack := s.next("acknowledgement", func(f *federationv1.WorkerFrame) bool { return f.GetTrustAck() != nil }).GetTrustAck()
	if secret := w.secret(); ack.GetHash() != link.TrustHash(both) || !bytes.Equal(secret.Data[identity.TrustName], both) ||
		secret.Labels["kept"] != "yes" {
		t.Errorf("acknowledged %s, stored %d bytes of CAs, labels %v", ack.GetHash(), len(secret.Data[identity.TrustName]), secret.Labels)
	}

	// CAs without the hub's own are not taken. The worker attaches again, once, because the hub may have another certificate by now.
	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Trust{Trust: trustOf(other)}})
	<-s.over
	s = w.hub.session()
	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Trust{Trust: trustOf(other)}})
	if got := s.hello.GetTrust(); got != link.TrustHash(both) {
		t.Errorf("after CAs without the hub's own the Hello names the trust %q", got)
	}

	request := s.renew()
	issued := w.issue(request, both)
	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Certificate{Certificate: issued}})
	<-s.over
	next := w.hub.session()
	if next.key == s.key {
		t.Error("it has attached with the old certificate")
	}
	w.Eventually("the old certificate to be gone", func() error {
		data := w.secret().Data
		return wait.If(bytes.Equal(data[identity.CertName], issued.GetChain()) && len(data[identity.NextCertName]) == 0, len(data))
	})
	if got := next.ask(1, &federationv1.Dispatch{Call: w.claimCall("py", "")}); got.GetSandbox() == nil {
		t.Errorf("a claim on the next stream got %v", got)
	}
	if own.Cause() != "" {
		t.Errorf("it says that it is out: %s", own.Cause())
	}
}

// full is a Store that cannot be written a few times.
type full struct {
	identity.Store
	fails atomic.Int32 // how often still
}

func (f *full) Save(ctx context.Context, data identity.Data, version string) error {
	if f.fails.Add(-1) >= 0 {
		return errors.New("the API server is away")
	}
	return f.Store.Save(ctx, data, version)
}

// A certificate that cannot be stored is kept, and the hub is not asked for another one.
func TestACertificateIsStoredOnceThatIsPossible(t *testing.T) {
	w := newWorld(t)
	store := &full{}
	own := &ordered{Identity: w.newIdentityOn(func(s identity.Store) identity.Store {
		store.Store = s
		return store
	})}
	w.leadIdentity(own)
	s := w.hub.session()
	request := s.renew()
	store.fails.Store(2)
	issued := w.issue(request, w.read(w.ca.CAFile()))
	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Certificate{Certificate: issued}})
	select {
	case <-s.over:
	case <-time.After(patience):
		t.Fatal("the certificate was dropped")
	}
	if next := w.hub.session(); next.key == s.key {
		t.Error("it has attached with the old certificate")
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	if asked := slices.DeleteFunc(slices.Clone(own.calls), func(c string) bool { return c != "Request" }); len(asked) != 1 {
		t.Errorf("the hub was asked for a certificate %d times", len(asked))
	}
}

// A hub that refuses the new certificate gets the old one again.
func TestAWorkerGoesBackToItsOldCertificate(t *testing.T) {
	w := newWorld(t)
	w.leadIssued()
	s := w.hub.session()
	request := s.renew()
	w.hub.set(func() {
		w.hub.refusedKey = func(key string) error { return wait.If(key == s.key, key) }
	})
	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Certificate{Certificate: w.issue(request, w.read(w.ca.CAFile()))}})
	<-s.over
	if next := w.hub.session(); next.key != s.key {
		t.Error("it has attached with the refused certificate")
	}
}

// A certificate that comes before the hub has accepted the stream is not the one that it accepts.
func TestAStreamIsAcceptedBeforeItsCertificateIsRenewed(t *testing.T) {
	w := newWorld(t)
	w.hub.set(func() { w.hub.muted, w.hub.noAcks = true, true })
	own := &ordered{Identity: w.newIdentity()}
	w.leadIdentity(own)
	s := w.hub.session()
	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Renew{Renew: &federationv1.RenewCertificate{Reason: "it ends"}}})
	s.beats(3)
	w.hub.mute(false)
	s.next("request", func(f *federationv1.WorkerFrame) bool { return f.GetCertificateRequest() != nil })
	own.mu.Lock()
	defer own.mu.Unlock()
	if !slices.Equal(own.calls, []string{"Attached", "Request"}) {
		t.Errorf("the worker calls %v", own.calls)
	}
}

// Conversations go on with the stream of a new certificate, and end with that one.
func TestConversationsOutliveARenewal(t *testing.T) {
	w := newWorld(t)
	w.makeEnv("py", 1)
	w.leadIssued()
	s := w.hub.session()
	w.hub.shows("py", 1)
	s.dispatch(&federationv1.Dispatch{Id: 1, Incarnation: 1, Call: &federationv1.Dispatch_Watch{Watch: &federationv1.WatchCall{Token: "t"}}})
	tunnel := <-w.hub.tunnels
	_, err := tunnel.Next()
	w.Must(err)
	s.answer(1)

	request := s.renew()
	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Certificate{Certificate: w.issue(request, w.read(w.ca.CAFile()))}})
	<-s.over
	next := w.hub.session()
	id := next.ask(1, &federationv1.Dispatch{Call: w.claimCall("py", "")}).GetSandbox().GetId()
	for seen := false; !seen; {
		changes, err := tunnel.Next()
		w.Must(err)
		for _, sandbox := range changes.GetChanged() {
			seen = seen || sandbox.GetId() == id
		}
	}
	close(next.hangUp)
	select {
	case <-tunnel.Cut():
	case <-time.After(patience):
		t.Error("the conversation outlives the stream that ended for another reason")
	}
}

// A worker that is not told to serve its API server refuses, and opens no tunnel.
func TestTheAPIServerIsNotServedUnlessAsked(t *testing.T) {
	w := newWorld(t)
	w.makeEnv("py", 1)
	w.leadIssued()
	s := w.hub.session()
	w.hub.shows("py", 1)
	call := &federationv1.Dispatch_Kubernetes{Kubernetes: &federationv1.KubernetesCall{Token: "t", User: "user:alice"}}
	if e := s.ask(1, &federationv1.Dispatch{Call: call}).GetError(); e.GetCode() != int32(codes.Unimplemented) ||
		!strings.Contains(e.GetMessage(), "--serve-kubernetes") {
		t.Errorf("the worker says %v", e)
	}
	select {
	case <-w.hub.tunnels:
		t.Error("the worker opened a tunnel")
	default:
	}
}
