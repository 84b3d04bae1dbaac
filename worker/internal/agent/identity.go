// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/x509"
	"errors"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
)

// Identity is the worker's identity that a hub issues.
type Identity interface {
	// Prepare gets an identity by an invitation if one is needed. An error means that attaching would fail.
	Prepare(ctx context.Context, hub link.Dial) error
	// Ended receives the error that ended an attempt to attach.
	Ended(err error)
	// Attached is called once the hub has accepted a stream.
	Attached(ctx context.Context) error
	// Trust returns the hash of the trusted CAs, or "" if the hub cannot change them.
	Trust() string
	// Replace replaces the trusted CAs, provided that the new ones accept the chain that the hub has shown.
	Replace(ctx context.Context, trust *federationv1.Trust, hub []*x509.Certificate) error
	// Due reports whether the hub should have asked for a renewal by now.
	Due() bool
	// Request returns a certificate signing request. Renew stores the issued certificate; after link.ErrNotStored it is called again.
	Request() (csr []byte, err error)
	Renew(ctx context.Context, issued *federationv1.Certificate, hub []*x509.Certificate) error
}

var errFiles = errors.New("this worker's certificate comes from files, which the hub does not renew")

// files is the identity of a worker whose certificate comes from files.
type files struct{}

func (files) Prepare(context.Context, link.Dial) error { return nil }
func (files) Ended(error)                              {}
func (files) Attached(context.Context) error           { return nil }
func (files) Trust() string                            { return "" }
func (files) Due() bool                                { return false }
func (files) Request() ([]byte, error)                 { return nil, errFiles }

func (files) Replace(context.Context, *federationv1.Trust, []*x509.Certificate) error {
	return errFiles
}

func (files) Renew(context.Context, *federationv1.Certificate, []*x509.Certificate) error {
	return errFiles
}

// Refusal implements the interface that package link looks for in the error of a stream.
func (r *refused) Refusal() link.Refusal {
	switch r.Reason {
	case "Forgotten", "Revoked":
		return link.Revoked
	default:
		return link.Accepted
	}
}

const (
	// identityPause is the interval at which a stream checks whether its certificate is due for renewal, and repeats failed writes.
	identityPause = time.Second
	// askAgain is the time after which a request without a response is repeated.
	askAgain = 30 * time.Second
	// askedLately is how long a sent request satisfies further requests of the hub.
	askedLately = 2 * time.Second
	// maxCertificateFrames bounds the queued frames about trust and certificates, of which a hub sends few.
	maxCertificateFrames = 8
)

// certificates is the part of a stream that handles trust and certificates. It has a goroutine of its own, because it writes to the store.
type certificates struct {
	in       chan *federationv1.HubFrame
	out      chan *federationv1.WorkerFrame
	accepted chan struct{} // closed when the hub has accepted the stream

	asked    time.Time                 // time of the pending request, else zero
	unstored *federationv1.Certificate // the certificate that could not be stored yet
	renewed  bool                      // the stream ends, and the next one shows the new certificate
}

func newCertificates() certificates {
	return certificates{
		in: make(chan *federationv1.HubFrame, maxCertificateFrames), out: make(chan *federationv1.WorkerFrame), accepted: make(chan struct{}),
	}
}

// accept records that the hub has accepted the stream. Only the goroutine of send calls it.
func (c *certificates) accept() {
	select {
	case <-c.accepted:
	default:
		close(c.accepted)
	}
}

// take queues a frame. read calls it, and must not wait: a frame that does not fit is dropped, and the hub sends it again on the next
// stream.
func (c *certificates) take(frame *federationv1.HubFrame) {
	select {
	case c.in <- frame:
	default:
	}
}

// keepIdentity handles trust and certificates until the stream ends; failures do not end the stream. It first stores that the hub has
// accepted the certificate of this stream. After a renewal, the current certificate is another one, which no hub has seen.
func (u *uplink) keepIdentity(ctx context.Context) error {
	ticker := u.clock.NewTicker(identityPause)
	defer ticker.Stop()
	accepted, confirmed := u.certificates.accepted, false
	for {
		var err error
		var in <-chan *federationv1.HubFrame
		if confirmed {
			in = u.certificates.in
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-accepted:
			accepted = nil
			err = u.agent.opts.Identity.Attached(ctx)
			confirmed = err == nil
		case frame := <-in:
			err = u.handleCertificate(ctx, frame)
		case <-ticker.C():
			switch {
			case accepted == nil && !confirmed:
				err = u.agent.opts.Identity.Attached(ctx)
				confirmed = err == nil
			case u.certificates.unstored != nil:
				err = u.renew(ctx, u.certificates.unstored)
			case confirmed && !u.certificates.renewed && u.agent.opts.Identity.Due() && u.mayAsk():
				err = u.ask(ctx, "the hub has not asked for it")
			}
		}
		if err != nil && ctx.Err() == nil {
			u.agent.opts.Log.Info("Could not change the certificate or the CAs of this cluster", "reason", err.Error())
		}
	}
}

func (u *uplink) mayAsk() bool {
	return u.certificates.asked.IsZero() || u.clock.Since(u.certificates.asked) >= askAgain
}

// ask sends a request for a certificate.
func (u *uplink) ask(ctx context.Context, why string) error {
	csr, err := u.agent.opts.Identity.Request()
	if err != nil {
		return err
	}
	u.certificates.asked = u.clock.Now()
	u.agent.opts.Log.Info("Asking the hub for a new certificate", "reason", why)
	return u.post(ctx, &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_CertificateRequest{
		CertificateRequest: &federationv1.CertificateRequest{Csr: csr},
	}})
}

func (u *uplink) post(ctx context.Context, frame *federationv1.WorkerFrame) error {
	select {
	case u.certificates.out <- frame:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (u *uplink) handleCertificate(ctx context.Context, frame *federationv1.HubFrame) error {
	identity, hub := u.agent.opts.Identity, link.HubChain(u.stream.Context())
	switch body := frame.GetBody().(type) {
	case *federationv1.HubFrame_Trust:
		err := identity.Replace(ctx, body.Trust, hub)
		if errors.Is(err, link.ErrLockedOut) && u.agent.lockedOut != body.Trust.GetHash() {
			// The hub may show another certificate now than when the stream began.
			u.agent.lockedOut = body.Trust.GetHash()
			u.leave(link.ErrRenewed)
		}
		if err != nil {
			return err
		}
		return u.post(ctx, &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_TrustAck{
			TrustAck: &federationv1.TrustAck{Hash: body.Trust.GetHash()},
		}})
	case *federationv1.HubFrame_Renew:
		c := &u.certificates
		if c.renewed || c.unstored != nil || !c.asked.IsZero() && u.clock.Since(c.asked) < askedLately {
			return nil
		}
		return u.ask(ctx, body.Renew.GetReason())
	case *federationv1.HubFrame_Certificate:
		return u.renew(ctx, body.Certificate)
	}
	return nil
}

// renew stores a certificate that the hub has sent. If storing fails, renew keeps it for another try, because the hub issues few.
func (u *uplink) renew(ctx context.Context, issued *federationv1.Certificate) error {
	c := &u.certificates
	err := u.agent.opts.Identity.Renew(ctx, issued, link.HubChain(u.stream.Context()))
	switch {
	case errors.Is(err, link.ErrNotStored):
		c.unstored = issued
	case err == nil || c.unstored == issued:
		c.unstored = nil
	}
	if err != nil {
		return err
	}
	c.asked, c.renewed = time.Time{}, true
	u.leave(link.ErrRenewed)
	return nil
}

// leave ends the stream when the calls under way have ended, or after partingTime.
func (u *uplink) leave(why error) {
	select {
	case u.redirect <- why:
	default: // already leaving
	}
}
