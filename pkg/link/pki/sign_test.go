// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net"
	"net/url"
	"testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
)

func TestRequests(t *testing.T) {
	curve := func(c elliptic.Curve) crypto.Signer {
		key, err := ecdsa.GenerateKey(c, rand.Reader)
		must.Succeed(t, err)
		return key
	}
	good := curve(elliptic.P256())
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	must.Succeed(t, err)
	short, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // it is to be refused
	if err != nil {
		t.Logf("this build makes no short keys: %v", err)
	}
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(t, err)
	other, err := url.Parse("https://example.org")
	must.Succeed(t, err)
	for name, c := range map[string]struct {
		key      crypto.Signer
		template x509.CertificateRequest
		ok       bool
	}{
		"no name":      {good, x509.CertificateRequest{}, true},
		"its name":     {good, x509.CertificateRequest{URIs: []*url.URL{link.Cluster("east").URI()}}, true},
		"P-384":        {curve(elliptic.P384()), x509.CertificateRequest{}, true},
		"Ed25519":      {edwards, x509.CertificateRequest{}, true},
		"RSA 2048":     {long, x509.CertificateRequest{}, true},
		"P-521":        {curve(elliptic.P521()), x509.CertificateRequest{}, false},
		"P-224":        {curve(elliptic.P224()), x509.CertificateRequest{}, false},
		"another name": {good, x509.CertificateRequest{URIs: []*url.URL{link.Cluster("west").URI()}}, false},
		"a hub":        {good, x509.CertificateRequest{URIs: []*url.URL{link.Hub().URI()}}, false},
		"another URI":  {good, x509.CertificateRequest{URIs: []*url.URL{other}}, false},
		"two names":    {good, x509.CertificateRequest{URIs: []*url.URL{link.Cluster("east").URI(), link.Cluster("east").URI()}}, false},
		"a host":       {good, x509.CertificateRequest{DNSNames: []string{"hub"}}, false},
		"an address":   {good, x509.CertificateRequest{IPAddresses: []net.IP{{127, 0, 0, 1}}}, false},
		"a mailbox":    {good, x509.CertificateRequest{EmailAddresses: []string{"a@example.org"}}, false},
		"an extension": {good, x509.CertificateRequest{ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19},
			Value: []byte{48, 3, 1, 1, 255}}}}, false},
		"another names": {good, x509.CertificateRequest{ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17},
			Value: []byte{48, 4, 0x88, 2, 42, 3}}}}, false},
	} {
		der, err := x509.CreateCertificateRequest(rand.Reader, &c.template, c.key)
		must.Succeed(t, err)
		if _, err := pki.CheckRequest(der, "east"); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		der[len(der)-1] ^= 1
		if _, err := pki.CheckRequest(der, "east"); err == nil {
			t.Errorf("%s: a request that its key has not signed", name)
		}
	}
	if short != nil {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, short)
		if err == nil {
			_, err = pki.CheckRequest(der, "east")
		}
		if err == nil {
			t.Error("RSA 1024 is accepted")
		}
	}
}
