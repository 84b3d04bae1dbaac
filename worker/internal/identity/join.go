// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/validate"
)

// errOut means that there is no identity and no way to get one.
var errOut = errors.New("this cluster has no certificate of its hub")

// Prepare gets an identity before an attempt to reach the hub. It uses an invitation if there is no identity or the hub does not accept it.
// An error means that the attempt would fail.
func (i *Identity) Prepare(ctx context.Context, hub link.Dial) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.leads {
		i.leads = true
		if err := i.load(ctx); err != nil && i.current.Load() == nil {
			i.setCause("its identity cannot be read: see the worker's log")
			return err
		}
	}
	exists := i.current.Load() != nil
	if exists && i.refusal == link.Accepted {
		return nil
	}
	invitation, err := i.invitation()
	switch {
	case err == nil && invitation.ID != "" && invitation.ID != string(i.data[invitationName]):
		if err = i.join(ctx, hub, invitation); err == nil {
			return nil
		}
		if exists {
			i.opts.Log.Info("Could not join; trying the certificate that the hub did not accept", "reason", err.Error())
			return nil
		}
		return err
	case exists:
		i.setCause(string(i.refusal) + "; " + i.remedy())
		return nil // the hub may accept it again
	}
	cause := "it has not joined yet"
	switch {
	case err != nil:
		cause += ", and its invitation cannot be read: see the worker's log"
	case i.opts.TokenFile != "":
		cause += ", and there is no invitation in " + i.opts.TokenFile
	}
	i.setCause(cause + "; " + i.remedy())
	return &link.RetryAfterError{Err: errors.Join(errOut, err), After: link.MaxBackoff}
}

func (i *Identity) remedy() string {
	return "invite it: atollctl cluster invite " + i.opts.ClusterID
}

// invitation reads the invitation from the token file. It is zero if there is none.
func (i *Identity) invitation() (link.Invitation, error) {
	text, err := i.readToken()
	if err != nil || text == "" {
		return link.Invitation{}, err
	}
	invitation, err := link.ParseInvitation(text)
	if err != nil {
		return link.Invitation{}, fmt.Errorf("--token-file %s: %w", i.opts.TokenFile, err)
	}
	return invitation, nil
}

// readToken returns the file's content without surrounding white space, or "" without a file.
func (i *Identity) readToken() (string, error) {
	if i.opts.TokenFile == "" {
		return "", nil
	}
	file, err := os.Open(i.opts.TokenFile)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, link.MaxInvitation+1))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// lookForToken ends the pause before the next attempt if there is another token.
func (i *Identity) lookForToken() {
	text, err := i.readToken()
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil || text == i.token {
		return
	}
	i.token = text
	if text == "" || !i.leads || i.current.Load() != nil && i.refusal == link.Accepted {
		return
	}
	i.opts.Log.Info("There is another invitation")
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

const (
	// These bound the pause before the hub is asked again about a request that awaits approval.
	minApprovalPause, maxApprovalPause = time.Second, 30 * time.Second
)

// join sends one request for a certificate.
func (i *Identity) join(ctx context.Context, hub link.Dial, by link.Invitation) error {
	key, err := i.joiningKey(ctx)
	if err != nil {
		return err
	}
	uid, err := i.opts.ClusterUID(ctx)
	if err != nil {
		return err
	}
	csr, err := link.NewCSR(key, link.Cluster(i.opts.ClusterID))
	if err != nil {
		return err
	}
	response, chain, err := hub.Join(ctx, by, &federationv1.JoinRequest{
		ClusterId: i.opts.ClusterID, ClusterUid: uid, Csr: csr, Version: i.opts.Version,
	})
	if err != nil {
		i.metrics.certificate("join", "failed")
		if said, refused := refusedWords(err); refused {
			i.setCause(fmt.Sprintf("the hub refused %s: %s; %s", by, said, i.remedy()))
			return &link.RetryAfterError{Err: err, After: link.MaxBackoff}
		}
		if strings.Contains(err.Error(), link.ErrPinned.Error()) {
			i.setCause(fmt.Sprintf("the server at --hub is not the one of %s; %s", by, i.remedy()))
			return &link.RetryAfterError{Err: err, After: link.MaxBackoff}
		}
		return err
	}
	if response.GetCertificate() == nil {
		i.setCause("its request waits at the hub: atollctl cluster approve " + i.opts.ClusterID)
		i.metrics.certificate("join", "waits")
		after := min(max(response.GetRetryAfter().AsDuration(), minApprovalPause), maxApprovalPause)
		return &link.RetryAfterError{Err: errors.New("the request waits for an approval at the hub"), After: after}
	}
	if err := i.verify(response.GetCertificate(), key, chain); err != nil {
		i.metrics.certificate("join", "failed")
		return err
	}
	keyPEM := i.data[NextKeyName]
	err = i.save(ctx, Data{
		KeyName: keyPEM, CertName: response.GetCertificate().GetChain(), TrustName: response.GetCertificate().GetTrust().GetBundle(),
		invitationName: []byte(by.ID), NextKeyName: nil, NextCertName: nil,
	})
	if err != nil {
		return fmt.Errorf("keeping the certificate, which the hub issues again to the same key: %w", err)
	}
	i.metrics.certificate("join", "issued")
	i.refusal, i.request, i.received = link.Accepted, nil, i.opts.Clock.Now()
	i.setCause("")
	i.opts.Log.Info("Joined", "by", by.String(), "hub", hub.Target)
	return nil
}

// refusedWords returns the message of a hub that does not accept an invitation.
func refusedWords(err error) (string, bool) {
	var told interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &told) {
		return "", false
	}
	s := told.GRPCStatus()
	switch s.Code() {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.AlreadyExists:
		return validate.Clip(s.Message()), true
	default:
		return "", false
	}
}

// joiningKey returns the key to join with. It stores a new key first.
func (i *Identity) joiningKey(ctx context.Context) (*ecdsa.PrivateKey, error) {
	if key, err := parseKey(i.data[NextKeyName]); err == nil && len(i.data[NextCertName]) == 0 {
		return key, nil
	}
	key, keyPEM, err := link.NewKey()
	if err != nil {
		return nil, err
	}
	if err := i.save(ctx, Data{NextKeyName: keyPEM, NextCertName: nil}); err != nil {
		return nil, fmt.Errorf("storing the key to join with: %w", err)
	}
	return key, nil
}

func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no key")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading a key: %w", err)
	}
	if key, ok := key.(*ecdsa.PrivateKey); ok {
		return key, nil
	}
	return nil, errors.New("no key of an elliptic curve")
}

func (i *Identity) verify(issued *federationv1.Certificate, key *ecdsa.PrivateKey, hub []*x509.Certificate) error {
	return link.VerifyIssued(issued, key.Public(), link.Cluster(i.opts.ClusterID), hub, i.opts.Clock.Now())
}
