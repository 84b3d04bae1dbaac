// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

const (
	joinTimeout = 20 * time.Second
	// maxJoinResponse bounds the response of a hub that has proven only the hash in the invitation.
	maxJoinResponse = 256 << 10
	maxHubChain     = 16
)

// ErrPinned means that a server did not present the CA that the invitation names. Nothing was sent to it.
var ErrPinned = errors.New("the server is not the hub of the invitation")

// Join sends a request for a certificate to one address of the hub. It returns the response and the certificate chain that the hub
// presented. It sends nothing before the hub has proven, by the hash in the invitation, that it issued the invitation.
func (d Dial) Join(ctx context.Context, by Invitation, request *federationv1.JoinRequest) (
	_ *federationv1.JoinResponse, chain []*x509.Certificate, err error,
) {
	list, err := SplitTargets(d.Target)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the hub's address: %w", err)
	}
	if d.Resolve == nil && d.Open == nil {
		d.Resolve = net.DefaultResolver.LookupHost
	}
	if d.Random == nil {
		d.Random = rand.Int64N
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	at := (&targets{list: list, resolve: d.Resolve, clock: d.Clock, random: d.Random}).next(ctx)
	if d.ServerName == "" {
		d.ServerName = at.host
	}
	options := append(calling(credentials.NewTLS(pinnedConfig(by.CA, d.ServerName, d.Clock.Now))),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxJoinResponse)))
	if d.Open != nil {
		options = append(options, grpc.WithContextDialer(d.Open))
	}
	conn, err := grpc.NewClient(at.dial, options...)
	if err != nil {
		return nil, nil, fmt.Errorf("preparing to dial: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	request.Token = by.Token()
	var hub peer.Peer
	response, err := federationv1.NewJoiningClient(conn).Join(ctx, request, grpc.Peer(&hub))
	if err != nil {
		return nil, nil, fmt.Errorf("joining by %s: %w", by, err)
	}
	info, ok := hub.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil, nil, fmt.Errorf("joining by %s: %w", by, ErrPinned)
	}
	return response, info.State.PeerCertificates, nil
}

// pinnedConfig accepts only the hub of the CA with the given hash.
func pinnedConfig(hash, serverName string, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		ServerName:         serverName,
		InsecureSkipVerify: true, // VerifyConnection verifies the certificate, by the hash of its CA
		VerifyConnection: func(state tls.ConnectionState) error {
			return verifyPinned(state, hash, serverName, now())
		},
	}
}

// verifyPinned accepts a hub's certificate if its presented chain ends at the CA with that hash.
func verifyPinned(state tls.ConnectionState, hash, serverName string, now time.Time) error {
	chain := state.PeerCertificates
	if len(chain) == 0 || len(chain) > maxHubChain {
		return fmt.Errorf("%w: it shows %d certificates, want 2 to %d", ErrPinned, len(chain), maxHubChain)
	}
	roots, found := x509.NewCertPool(), false
	for _, cert := range chain[1:] {
		if cert.IsCA && CAHash(cert.Raw) == hash {
			roots.AddCert(cert)
			found = true
		}
	}
	if !found {
		return fmt.Errorf("%w: no CA in its chain has the hash %s", ErrPinned, hash)
	}
	if err := verifyChain(chain, roots, serverName, x509.ExtKeyUsageServerAuth, now); err != nil {
		return fmt.Errorf("%w: %w", ErrPinned, err)
	}
	if err := verifyHub(state); err != nil {
		return fmt.Errorf("%w: %w", ErrPinned, err)
	}
	return nil
}
