// SPDX-License-Identifier: Apache-2.0

package link_test

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
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpccreds "google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/pkg/link"
)

// issuer is a CA of a test.
type issuer struct {
	*testing.T
	cert *x509.Certificate
	key  crypto.Signer
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{T: t}
	i.cert, i.key = i.make(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	return i
}

// make issues a certificate of a new key, or of the given one.
func (i *issuer) make(template *x509.Certificate, of crypto.PublicKey) (*x509.Certificate, crypto.Signer) {
	i.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(i.T, err)
	if of == nil {
		of = key.Public()
	}
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	must.Succeed(i.T, err)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := i.cert, i.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, of, signer)
	must.Succeed(i.T, err)
	cert, err := x509.ParseCertificate(der)
	must.Succeed(i.T, err)
	return cert, key
}

func (i *issuer) leaf(who link.Identity, host string) (*x509.Certificate, crypto.Signer) {
	i.Helper()
	return i.make(&x509.Certificate{URIs: []*url.URL{who.URI()}, DNSNames: []string{host},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, nil)
}

func (i *issuer) hash() string { return link.CAHash(i.cert.Raw) }

func (i *issuer) trust() *federationv1.Trust {
	bundle := pemOf(i.cert)
	return &federationv1.Trust{Bundle: bundle, Hash: link.TrustHash(bundle)}
}

func pemOf(certs ...*x509.Certificate) []byte {
	var out []byte
	for _, cert := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	return out
}

// joining is a hub, as far as a cluster that joins sees it.
type joining struct {
	federationv1.UnimplementedJoiningServer
	calls    atomic.Int32
	response *federationv1.JoinResponse
	got      atomic.Pointer[federationv1.JoinRequest]
}

func (j *joining) Join(_ context.Context, request *federationv1.JoinRequest) (*federationv1.JoinResponse, error) {
	j.calls.Add(1)
	j.got.Store(request)
	return j.response, nil
}

// serve presents a chain and returns the address.
func (j *joining) serve(t *testing.T, key crypto.Signer, chain ...*x509.Certificate) string {
	t.Helper()
	shown := tls.Certificate{PrivateKey: key}
	for _, cert := range chain {
		shown.Certificate = append(shown.Certificate, cert.Raw)
	}
	server := grpc.NewServer(grpc.Creds(grpccreds.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{shown}})))
	federationv1.RegisterJoiningServer(server, j)
	return testserver.ServeGRPC(t, server)
}

// A worker sends its invitation to the hub that gave it, and to no other server, whatever that shows.
func TestAnInvitationIsSentToItsHubAlone(t *testing.T) {
	ours, other := newIssuer(t), newIssuer(t)
	hub, key := ours.leaf(link.Hub(), "hub")
	false1, false1Key := other.leaf(link.Hub(), "hub")
	worker, workerKey := ours.leaf(link.Cluster("west"), "hub")
	elsewhere, elsewhereKey := ours.leaf(link.Hub(), "elsewhere")
	old, oldKey := ours.make(&x509.Certificate{URIs: []*url.URL{link.Hub().URI()}, DNSNames: []string{"hub"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotBefore: time.Now().Add(-2 * time.Hour),
		NotAfter: time.Now().Add(-time.Hour)}, nil)
	for name, c := range map[string]struct {
		key   crypto.Signer
		chain []*x509.Certificate
		want  string
	}{
		"its hub":                             {key, []*x509.Certificate{hub, ours.cert}, ""},
		"another CA":                          {false1Key, []*x509.Certificate{false1, other.cert}, "no CA in its chain has the hash"},
		"another CA, beside the hub's":        {false1Key, []*x509.Certificate{false1, other.cert, ours.cert}, "unknown authority"},
		"the leaf alone":                      {key, []*x509.Certificate{hub}, "no CA in its chain has the hash"},
		"a worker of the same CA":             {workerKey, []*x509.Certificate{worker, ours.cert}, "is no hub"},
		"a hub of another name":               {elsewhereKey, []*x509.Certificate{elsewhere, ours.cert}, "elsewhere"},
		"a certificate that has long expired": {oldKey, []*x509.Certificate{old, ours.cert}, "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			server := &joining{response: &federationv1.JoinResponse{RetryAfter: durationpb.New(3 * time.Second)}}
			dial := link.Dial{Target: server.serve(t, c.key, c.chain...), ServerName: "hub", Clock: clock.RealClock{}}
			by, err := link.ParseInvitation("atoll-join.v1." + ours.hash() + ".i1.secret")
			must.Succeed(t, err)
			response, chain, err := dial.Join(t.Context(), by, &federationv1.JoinRequest{ClusterId: "east"})
			if c.want == "" {
				must.Succeed(t, err)
				if got := server.got.Load(); got.GetToken() != by.Token() || got.GetClusterId() != "east" {
					t.Errorf("the hub got %v", got)
				}
				if response.GetRetryAfter().AsDuration() != 3*time.Second || len(chain) != 2 || !chain[0].Equal(hub) {
					t.Errorf("got %v of %d certificates", response, len(chain))
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), link.ErrPinned.Error()) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if n := server.calls.Load(); n != 0 {
				t.Errorf("it was sent %d requests", n)
			}
		})
	}
}

func TestAnIssuedCertificateIsVerified(t *testing.T) {
	ours, other := newIssuer(t), newIssuer(t)
	hub, _ := ours.leaf(link.Hub(), "hub")
	key, _, err := link.NewKey()
	must.Succeed(t, err)
	issue := func(by *issuer, who link.Identity, of crypto.PublicKey, validFrom time.Duration) []byte {
		cert, _ := by.make(&x509.Certificate{URIs: []*url.URL{who.URI()}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			NotBefore: time.Now().Add(validFrom), NotAfter: time.Now().Add(24 * time.Hour)}, of)
		return pemOf(cert)
	}
	good := issue(ours, link.Cluster("east"), key.Public(), 0)
	both := append(pemOf(ours.cert), pemOf(other.cert)...)
	large := append(pemOf(ours.cert), make([]byte, link.MaxTrust)...)
	many := []byte(strings.Repeat(string(pemOf(ours.cert)), 17))
	withLeaf := append(pemOf(ours.cert), pemOf(hub)...)
	_, keyPEM, err := link.NewKey()
	must.Succeed(t, err)
	for name, c := range map[string]struct {
		chain, bundle []byte
		hash          string
		want          error
	}{
		"good":                              {good, nil, "", nil},
		"I11: valid in five minutes":        {issue(ours, link.Cluster("east"), key.Public(), 5*time.Minute), nil, "", nil},
		"valid in an hour":                  {issue(ours, link.Cluster("east"), key.Public(), time.Hour), nil, "", link.ErrIssued},
		"two CAs":                           {good, both, "", nil},
		"of another key":                    {issue(ours, link.Cluster("east"), hub.PublicKey, 0), nil, "", link.ErrIssued},
		"of another cluster":                {issue(ours, link.Cluster("west"), key.Public(), 0), nil, "", link.ErrIssued},
		"of another CA":                     {issue(other, link.Cluster("east"), key.Public(), 0), nil, "", link.ErrIssued},
		"nothing":                           {nil, nil, "", link.ErrIssued},
		"text":                              {[]byte("certificate"), nil, "", link.ErrIssued},
		"a key":                             {append(append([]byte{}, good...), keyPEM...), nil, "", link.ErrIssued},
		"CAs that refuse the hub":           {issue(other, link.Cluster("east"), key.Public(), 0), pemOf(other.cert), "", link.ErrLockedOut},
		"CAs whose hash differs":            {good, nil, strings.Repeat("0", 64), link.ErrTrust},
		"CAs of which one is a certificate": {good, withLeaf, "", link.ErrTrust},
		"too many CAs":                      {good, many, "", link.ErrTrust},
		"CAs that are too large":            {good, large, "", link.ErrTrust},
	} {
		t.Run(name, func(t *testing.T) {
			trust := ours.trust()
			if c.bundle != nil {
				trust = &federationv1.Trust{Bundle: c.bundle, Hash: link.TrustHash(c.bundle)}
			}
			if c.hash != "" {
				trust.Hash = c.hash
			}
			err := link.VerifyIssued(&federationv1.Certificate{Chain: c.chain, Trust: trust}, key.Public(), link.Cluster("east"),
				[]*x509.Certificate{hub, ours.cert}, time.Now())
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestACSRNamesTheClusterAlone(t *testing.T) {
	key, _, err := link.NewKey()
	must.Succeed(t, err)
	der, err := link.NewCSR(key, link.Cluster("east"))
	must.Succeed(t, err)
	csr, err := x509.ParseCertificateRequest(der)
	must.Succeed(t, err)
	if err := csr.CheckSignature(); err != nil || len(csr.URIs) != 1 || csr.URIs[0].String() != link.Cluster("east").String() {
		t.Errorf("it names %v (%v)", csr.URIs, err)
	}
	if csr.Subject.String() != "" || len(csr.DNSNames)+len(csr.IPAddresses)+len(csr.EmailAddresses) > 0 {
		t.Errorf("it names %v as well", csr)
	}
}
