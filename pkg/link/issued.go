// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

const (
	// MaxTrust bounds the CAs of a hub that a worker stores.
	MaxTrust = 64 << 10
	// MaxChain bounds the certificate chain of a hub that a worker stores.
	MaxChain        = 64 << 10
	maxCAs          = 16
	maxCertificates = 8
	// clockTolerance is how far this process' clock may be off (I11).
	clockTolerance = 10 * time.Minute
)

var (
	// ErrTrust means that a worker cannot accept the CAs that a hub sent.
	ErrTrust = errors.New("the hub's CAs are not accepted")
	// ErrLockedOut means that the CAs do not accept the hub that sent them, judging by the certificate of its connection.
	ErrLockedOut = errors.New("the hub's own certificate does not come from them")
	// ErrIssued means that a certificate cannot be used.
	ErrIssued = errors.New("the hub's certificate for this cluster is not accepted")
	// ErrNotStored means that a certificate is valid but could not be stored, which has to come before its use.
	ErrNotStored = errors.New("the new certificate could not be stored")
)

// TrustHash identifies a bundle of CAs: its SHA-256, in hex.
func TrustHash(bundle []byte) string {
	sum := sha256.Sum256(bundle)
	return hex.EncodeToString(sum[:])
}

// VerifyTrust returns an error if a worker must not accept these CAs from the hub that presented the chain, for example because it could
// not reach that hub again with them.
func VerifyTrust(trust *federationv1.Trust, hub []*x509.Certificate, now time.Time) error {
	roots, err := readTrust(trust)
	if err != nil {
		return err
	}
	if len(hub) == 0 {
		return fmt.Errorf("%w: %w: it has shown none", ErrTrust, ErrLockedOut)
	}
	// The stream may have outlived the certificate with which it began.
	at := now
	if leaf := hub[0]; at.After(leaf.NotAfter) {
		at = leaf.NotAfter
	} else if at.Before(leaf.NotBefore) {
		at = leaf.NotBefore
	}
	if err := verifyChain(hub, roots, "", x509.ExtKeyUsageServerAuth, at); err != nil {
		return fmt.Errorf("%w: %w: %w", ErrTrust, ErrLockedOut, err)
	}
	return nil
}

func readTrust(trust *federationv1.Trust) (*x509.CertPool, error) {
	bundle := trust.GetBundle()
	if len(bundle) > MaxTrust {
		return nil, fmt.Errorf("%w: they have %d bytes, want at most %d", ErrTrust, len(bundle), MaxTrust)
	}
	if got := TrustHash(bundle); got != trust.GetHash() {
		return nil, fmt.Errorf("%w: their hash is %s, the hub says %.64q", ErrTrust, got, trust.GetHash())
	}
	certs, err := ParseCertificates(bundle, maxCAs)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTrust, err)
	}
	roots := x509.NewCertPool()
	for i, cert := range certs {
		if !cert.IsCA || !cert.BasicConstraintsValid {
			return nil, fmt.Errorf("%w: certificate %d is of no CA", ErrTrust, i+1)
		}
		roots.AddCert(cert)
	}
	return roots, nil
}

// VerifyIssued returns an error if a worker must not use the certificate. The certificate must be for this key and this identity, and be
// signed by the CAs that the hub sends with it, which VerifyTrust must accept.
func VerifyIssued(issued *federationv1.Certificate, key crypto.PublicKey, who Identity, hub []*x509.Certificate, now time.Time) error {
	if err := VerifyTrust(issued.GetTrust(), hub, now); err != nil {
		return err
	}
	if n := len(issued.GetChain()); n > MaxChain {
		return fmt.Errorf("%w: it has %d bytes, want at most %d", ErrIssued, n, MaxChain)
	}
	chain, err := ParseCertificates(issued.GetChain(), maxCertificates)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrIssued, err)
	}
	if ours, ok := key.(interface{ Equal(x crypto.PublicKey) bool }); !ok || !ours.Equal(chain[0].PublicKey) {
		return fmt.Errorf("%w: it is of another key", ErrIssued)
	}
	if named, err := IdentityOf(chain[0]); err != nil || named != who {
		return fmt.Errorf("%w: it is of %s, want %s: %w", ErrIssued, named, who, errors.Join(err, ErrIdentity))
	}
	roots, err := readTrust(issued.GetTrust())
	if err != nil {
		return err
	}
	if err := verifyChain(chain, roots, "", x509.ExtKeyUsageClientAuth, now); err != nil {
		return fmt.Errorf("%w: %w", ErrIssued, err)
	}
	return nil
}

// verifyChain verifies the first certificate, with the others as intermediates. It tolerates a certificate that is expired or not valid yet
// by at most clockTolerance.
func verifyChain(chain []*x509.Certificate, roots *x509.CertPool, name string, usage x509.ExtKeyUsage, now time.Time) error {
	options := x509.VerifyOptions{
		Roots: roots, Intermediates: x509.NewCertPool(), DNSName: name, KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: now,
	}
	for _, cert := range chain[1:] {
		options.Intermediates.AddCert(cert)
	}
	_, err := chain[0].Verify(options)
	var invalid x509.CertificateInvalidError
	if !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		return err
	}
	for _, off := range []time.Duration{clockTolerance, -clockTolerance} {
		options.CurrentTime = now.Add(off)
		if _, again := chain[0].Verify(options); again == nil {
			return nil
		}
	}
	return err
}

// ParseCertificates parses between 1 and most PEM certificates, and rejects any other content.
func ParseCertificates(text []byte, most int) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for rest := bytes.TrimSpace(text); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("after %d certificates there is something else, want PEM blocks of type CERTIFICATE", len(out))
		}
		if len(out) == most {
			return nil, fmt.Errorf("there are more than %d certificates", most)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(out)+1, err)
		}
		out = append(out, cert)
	}
	if len(out) == 0 {
		return nil, errors.New("there is no certificate")
	}
	return out, nil
}

// NewKey returns a key for a certificate, and its PEM.
func NewKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// NewCSR returns a certificate request for an identity, in DER. It contains no other name.
func NewCSR(key crypto.Signer, who Identity) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{who.URI()}}, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate request: %w", err)
	}
	return der, nil
}

// HubChain returns the certificate chain that the hub of a stream presented. ctx is that of the stream, which must have received something.
func HubChain(ctx context.Context) []*x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil
	}
	return info.State.PeerCertificates
}
