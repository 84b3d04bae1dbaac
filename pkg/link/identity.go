// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

const (
	trustDomain   = "atoll.navix.sh"
	hubPath       = "/hub"
	clusterPrefix = "/cluster/"
)

// ErrIdentity means that a certificate has no valid identity, or not the expected one.
var ErrIdentity = errors.New("no such identity")

var clusterID = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,28}[a-z0-9])?$`)

// ValidClusterID reports whether id may name a cluster.
func ValidClusterID(id string) bool { return clusterID.MatchString(id) }

// Identity is the identity in a certificate.
type Identity struct {
	// ClusterID of a worker; empty for a hub.
	ClusterID string
}

// Hub is the identity of every hub replica.
func Hub() Identity { return Identity{} }

// Cluster is the identity of a cluster's worker.
func Cluster(id string) Identity { return Identity{ClusterID: id} }

func (i Identity) String() string { return i.URI().String() }

// URI returns the identity as the URI name of its certificate.
func (i Identity) URI() *url.URL {
	path := hubPath
	if i.ClusterID != "" {
		path = clusterPrefix + i.ClusterID
	}
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: path}
}

// IdentityOf parses the identity of a certificate. It does not verify the certificate.
func IdentityOf(cert *x509.Certificate) (Identity, error) {
	if n := len(cert.URIs); n != 1 {
		return Identity{}, fmt.Errorf("%w: certificate has %d URI names, want 1", ErrIdentity, n)
	}
	name := cert.URIs[0].String()
	path, ours := strings.CutPrefix(name, "spiffe://"+trustDomain)
	if ours && path == hubPath {
		return Hub(), nil
	}
	if id, ok := strings.CutPrefix(path, clusterPrefix); ours && ok && ValidClusterID(id) {
		return Cluster(id), nil
	}
	return Identity{}, fmt.Errorf("%w: %q", ErrIdentity, name)
}

// PeerCluster returns the cluster that the caller's certificate names. ctx is that of a handler of NewServer.
func PeerCluster(ctx context.Context) (string, error) {
	who, err := peerIdentity(ctx)
	if err != nil {
		return "", err
	}
	if who.ClusterID == "" {
		return "", fmt.Errorf("%w: %s is no cluster", ErrIdentity, who)
	}
	return who.ClusterID, nil
}

func peerIdentity(ctx context.Context) (Identity, error) {
	cert, err := peerCertificate(ctx)
	if err != nil {
		return Identity{}, err
	}
	return IdentityOf(cert)
}

// PeerKey returns a hash of the public key in the caller's certificate, or "" if there is none. It does not change when a certificate is
// renewed with the same key.
func PeerKey(ctx context.Context) string {
	cert, err := peerCertificate(ctx)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// PeerIssuer returns the hash of the CA that signed the caller's certificate, or "" if there is none.
func PeerIssuer(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) < 2 {
		return ""
	}
	return CAHash(info.State.VerifiedChains[0][1].Raw)
}

// PeerIssued returns when the caller's certificate became valid, or the zero time if there is none.
func PeerIssued(ctx context.Context) time.Time {
	cert, err := peerCertificate(ctx)
	if err != nil {
		return time.Time{}
	}
	return cert.NotBefore
}

// PeerExpiry returns when the caller's certificate expires, or the zero time if there is none.
func PeerExpiry(ctx context.Context) time.Time {
	cert, err := peerCertificate(ctx)
	if err != nil {
		return time.Time{}
	}
	return cert.NotAfter
}

func peerCertificate(ctx context.Context) (*x509.Certificate, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, fmt.Errorf("%w: no peer", ErrIdentity)
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return nil, fmt.Errorf("%w: the peer has no verified certificate", ErrIdentity)
	}
	return info.State.VerifiedChains[0][0], nil
}
