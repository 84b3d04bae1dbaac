// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/validate"
)

// errNotAsked is the error for a certificate that this process has not requested.
var errNotAsked = errors.New("the hub sends a certificate that was not asked for")

// Replace stores the CAs that the hub sends, and trusts them from then on.
func (i *Identity) Replace(ctx context.Context, trust *federationv1.Trust, hub []*x509.Certificate) error {
	if err := link.VerifyTrust(trust, hub, i.opts.Clock.Now()); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if string(i.data[TrustName]) == string(trust.GetBundle()) {
		return nil
	}
	if err := i.save(ctx, Data{TrustName: trust.GetBundle()}); err != nil {
		return fmt.Errorf("storing the hub's CAs: %w", err)
	}
	i.opts.Log.Info("Trusting the CAs that the hub sent", "hash", trust.GetHash())
	return nil
}

// Request returns a certificate signing request for a new key. Only this process has the key until the certificate is there.
func (i *Identity) Request() (csr []byte, err error) {
	key, keyPEM, err := link.NewKey()
	if err != nil {
		return nil, err
	}
	if csr, err = link.NewCSR(key, link.Cluster(i.opts.ClusterID)); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.request = &pending{key, keyPEM}
	return csr, nil
}

// Renew stores the certificate that the hub issued for the last request beside the current one, and uses it from then on. After
// link.ErrNotStored it may be called again with the same certificate.
func (i *Identity) Renew(ctx context.Context, issued *federationv1.Certificate, hub []*x509.Certificate) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	asked := i.request
	if asked == nil {
		return errNotAsked
	}
	if why := issued.GetError(); why != "" {
		i.request = nil
		i.metrics.certificate("renew", "failed")
		return fmt.Errorf("the hub does not renew the certificate: %s", validate.Clip(why))
	}
	if issued.GetTrust() == nil {
		bundle := i.data[TrustName]
		issued = &federationv1.Certificate{Chain: issued.GetChain(), Trust: &federationv1.Trust{Bundle: bundle, Hash: link.TrustHash(bundle)}}
	}
	if err := i.verify(issued, asked.key, hub); err != nil { // it may be for the previous request
		i.metrics.certificate("renew", "failed")
		return err
	}
	i.refused = ""
	err := i.save(ctx, Data{NextKeyName: asked.keyPEM, NextCertName: issued.GetChain(), TrustName: issued.GetTrust().GetBundle()})
	if err != nil {
		return fmt.Errorf("%w: %w", link.ErrNotStored, err)
	}
	i.request, i.received = nil, i.opts.Clock.Now()
	return nil
}

// Attached drops the old certificate after a hub has accepted a stream with the next one.
func (i *Identity) Attached(ctx context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refusal = link.Accepted
	i.setCause("")
	if !i.trying {
		return nil
	}
	err := i.save(ctx, Data{KeyName: i.data[NextKeyName], CertName: i.data[NextCertName], NextKeyName: nil, NextCertName: nil})
	if err != nil {
		return fmt.Errorf("dropping the old certificate: %w", err)
	}
	i.metrics.certificate("renew", "issued")
	i.opts.Log.Info("The hub has accepted the new certificate")
	return nil
}

// Ended handles the end of an attempt to reach the hub. If the next certificate was not accepted, the old one is used again.
func (i *Identity) Ended(err error) {
	refusal := link.RefusalOf(err)
	if refusal == link.Accepted {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.trying && len(i.data[CertName]) > 0 {
		i.opts.Log.Info("The hub does not accept the new certificate; using the old one", "reason", string(refusal))
		i.metrics.certificate("renew", "refused")
		i.refused = string(i.data[NextCertName])
		if err := i.choose(); err != nil {
			i.opts.Log.Error(err, "Cannot use the old certificate")
		}
		return
	}
	i.refusal = refusal
	i.setCause(string(refusal) + "; " + i.remedy())
}
