// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"

	"navix.sh/atoll/pkg/link"
)

// Backdate is link.Backdate.
const Backdate = link.Backdate

// MaxRequest is the largest certificate request, in bytes of DER.
const MaxRequest = 8 << 10

// minRSA is the minimum size of an RSA key, and maxRSA the maximum, up to which verification is cheap.
const (
	minRSA = 2048
	maxRSA = 8192
)

// CA signs certificates. It has no files.
type CA struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// NewCA creates a self-signed CA.
func NewCA(name string, now time.Time) (*CA, error) {
	key, _, err := link.NewKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := sign(template, caLifetime, now, nil, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading back the CA's certificate: %w", err)
	}
	return &CA{cert: cert, key: key}, nil
}

// ParseCA parses a CA from PEM. It ignores what follows the first certificate, such as the root of an intermediate CA: peers trust the CA
// itself.
func ParseCA(cert, key []byte) (*CA, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("reading a CA: %w", err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA || !pair.Leaf.BasicConstraintsValid {
		return nil, errors.New("reading a CA: the certificate is no CA's")
	}
	if pair.Leaf.KeyUsage != 0 && pair.Leaf.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, errors.New("reading a CA: its certificate does not allow it to sign certificates")
	}
	return &CA{cert: pair.Leaf, key: signer}, nil
}

// Certificate returns the CA's certificate.
func (c *CA) Certificate() *x509.Certificate { return c.cert }

// PEM returns the CA's certificate.
func (c *CA) PEM() []byte { return encode("CERTIFICATE", c.cert.Raw) }

// KeyPEM returns the CA's key.
func (c *CA) KeyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(c.key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return encode("PRIVATE KEY", der), nil
}

// Hash returns the hash that identifies the CA.
func (c *CA) Hash() string { return Hash(c.cert) }

// Hash returns link.CAHash of a certificate.
func Hash(cert *x509.Certificate) string { return link.CAHash(cert.Raw) }

// SignHub creates a key, and a certificate for a hub with the given host names and addresses. The chain includes the CA, so that a worker
// that knows only the CA's hash can verify it.
func (c *CA) SignHub(hosts []string, life time.Duration, now time.Time) (chain, keyPEM []byte, err error) {
	key, keyPEM, err := link.NewKey()
	if err != nil {
		return nil, nil, err
	}
	chain, err = c.issue(link.Hub(), hubTemplate(hosts), key.Public(), life, now)
	return chain, keyPEM, err
}

// SignCluster issues a certificate for a cluster's worker. The chain includes the CA.
func (c *CA) SignCluster(id string, pub crypto.PublicKey, life time.Duration, now time.Time) (chain []byte, err error) {
	if !link.ValidClusterID(id) {
		return nil, fmt.Errorf("issuing a certificate: %q is no cluster id", id)
	}
	return c.issue(link.Cluster(id), clusterTemplate(id), pub, life, now)
}

func (c *CA) issue(who link.Identity, template *x509.Certificate, pub crypto.PublicKey, life time.Duration, now time.Time) ([]byte, error) {
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.URIs = []*url.URL{who.URI()}
	if life = min(life, c.cert.NotAfter.Sub(now)); life <= 0 {
		return nil, fmt.Errorf("issuing a certificate: the CA ended at %s", c.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	der, err := sign(template, life, now, c.cert, pub, c.key)
	if err != nil {
		return nil, err
	}
	return append(encode("CERTIFICATE", der), c.PEM()...), nil
}

func hubTemplate(hosts []string) *x509.Certificate {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "atoll-hub"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return template
}

func clusterTemplate(id string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: "atoll-worker " + id},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// ErrRequest rejects a certificate request. The message contains the reason.
var ErrRequest = errors.New("csr")

// CheckRequest returns the public key of a certificate request. The request must be signed by that key, and must name the cluster or
// nothing: the signer sets the name, and would not issue anything else that a request names.
func CheckRequest(der []byte, clusterID string) (crypto.PublicKey, error) {
	if len(der) == 0 || len(der) > MaxRequest {
		return nil, fmt.Errorf("%w: %d bytes are not valid, want a PKCS #10 request of at most %d", ErrRequest, len(der), MaxRequest)
	}
	r, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("%w: no PKCS #10 request in DER: %w", ErrRequest, err)
	}
	if err := checkKey(r.PublicKey); err != nil { // check this first: a huge key would make verifying the signature costly
		return nil, err
	}
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("%w: its key has not signed it: %w", ErrRequest, err)
	}
	if len(r.DNSNames)+len(r.IPAddresses)+len(r.EmailAddresses) > 0 {
		return nil, fmt.Errorf("%w: it names hosts, addresses or mailboxes, want only %s, or no name", ErrRequest, link.Cluster(clusterID))
	}
	for _, name := range r.URIs {
		if name.String() != link.Cluster(clusterID).String() || len(r.URIs) != 1 {
			return nil, fmt.Errorf("%w: it names %.200q, want only %s, or no name", ErrRequest, name, link.Cluster(clusterID))
		}
	}
	for _, extension := range r.Extensions {
		if !extension.Id.Equal(oidAltNames) {
			return nil, fmt.Errorf("%w: it asks for the extension %s, want none but its name", ErrRequest, extension.Id)
		}
	}
	if err := onlyURIs(r.Extensions); err != nil {
		return nil, err
	}
	return r.PublicKey, nil
}

func checkKey(pub crypto.PublicKey) error {
	switch key := pub.(type) {
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() || key.Curve == elliptic.P384() {
			return nil
		}
	case ed25519.PublicKey:
		return nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits >= minRSA && bits <= maxRSA && key.E >= 3 && key.E <= 1<<31-1 {
			return nil
		}
	}
	return fmt.Errorf("%w: its key is not valid, want P-256, P-384, Ed25519, or RSA of %d to %d bits", ErrRequest, minRSA, maxRSA)
}

// KeyHash returns link.PeerKey of a public key.
func KeyHash(pub crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return "", fmt.Errorf("encoding a public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), nil
}

// Bundle returns the CAs in PEM.
func Bundle(cas ...*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, cert := range cas {
		out.Write(encode("CERTIFICATE", cert.Raw))
	}
	return out.Bytes()
}

// ParseCertificates parses all certificates of a PEM file.
func ParseCertificates(content []byte) (certs []*x509.Certificate, err error) {
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading a certificate: %w", err)
		}
		certs = append(certs, cert)
	}
	return certs, nil
}

// sign issues a certificate from template for pub. Without a parent it is self-signed.
func sign(
	template *x509.Certificate, life time.Duration, now time.Time, parent *x509.Certificate, pub crypto.PublicKey, key crypto.Signer,
) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	template.SerialNumber = serial
	template.NotBefore = now.Add(-Backdate)
	template.NotAfter = now.Add(life)
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate: %w", err)
	}
	return der, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
