// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"math/rand/v2"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/authority"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
)

// Authority issues clusters' certificates.
type Authority interface {
	// Trust returns the CAs that clusters must trust, and a channel that is closed when they change.
	Trust() (authority.Trust, <-chan struct{})
	// Renew issues another certificate for the cluster whose certificate asks, or returns a Certificate with the reason why not.
	Renew(ctx context.Context, by fleet.Peer, uid string, csr []byte) *federationv1.Certificate
	// Pause returns how long a cluster that got a certificate is not asked for another request.
	Pause() time.Duration
}

const (
	// offerEvery is the interval at which a worker gets CAs that it has not acknowledged.
	offerEvery = 30 * time.Second
	// A worker is asked again for a certificate request after a quarter of the remaining lifetime of its certificate, within these bounds.
	minAskAgain, maxAskAgain = 5 * time.Second, 30 * time.Second
	// lookAgain bounds a wait; because the wall clock may be stepped.
	lookAgain = time.Minute
)

// certify keeps the CAs that a worker trusts equal to the hub's, and renews its certificate, until ctx ends. It does nothing for a worker
// whose certificate comes from files.
func (c *conn) certify(ctx context.Context) {
	if c.server.opts.Authority == nil || !c.managed {
		return
	}
	peer := c.session.Peer()
	t := &certifying{
		issuer: peer.Issuer, issued: peer.Issued, expires: peer.Expires,
		renewAt: authority.RenewalAt(peer.Issued, peer.Expires, pki.Backdate, rand.Float64()), //nolint:gosec // spreads load, guards nothing
	}
	for ctx.Err() == nil {
		trust, changed := c.server.opts.Authority.Trust()
		now := c.server.opts.Clock.Now()
		next := t.decide(now, trust, c.session.Trust())
		if next.trust {
			c.offered.Store(&trust.Hash)
			c.send(ctx, &federationv1.HubFrame{Body: &federationv1.HubFrame_Trust{Trust: trust.Proto()}})
		}
		if next.renew != "" && !c.server.takeRenewal(c.clusterID, t.urgent(now)) {
			t.askAt, next.renew, next.wait = now.Add(renewalPause), "", min(next.wait, renewalPause)
		}
		if next.renew != "" {
			c.send(ctx, &federationv1.HubFrame{Body: &federationv1.HubFrame_Renew{Renew: &federationv1.RenewCertificate{Reason: next.renew}}})
		}
		timer := c.server.opts.Clock.NewTimer(next.wait)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C():
		case request := <-c.requests:
			issued := c.server.opts.Authority.Renew(ctx, peer, c.session.UID(), request.GetCsr())
			c.recordRenewal(ctx, issued.GetError() == "")
			if issued.GetError() == "" {
				t.askAt = c.server.opts.Clock.Now().Add(c.server.opts.Authority.Pause())
				c.renewing.Store(true)
				c.server.holdCalls(c.clusterID)
			}
			c.send(ctx, &federationv1.HubFrame{Body: &federationv1.HubFrame_Certificate{Certificate: issued}})
		}
		timer.Stop()
	}
}

func (c *conn) send(ctx context.Context, frame *federationv1.HubFrame) {
	select {
	case c.acks <- frame:
	case <-ctx.Done():
	}
}

// certifying is the state of the trust and renewal requests of one stream.
type certifying struct {
	issuer          string
	issued, expires time.Time
	renewAt         time.Time
	offered         string // hash of the CAs that were sent last
	offerAt, askAt  time.Time
}

// urgent reports whether less than a tenth of the certificate's lifetime is left.
func (t *certifying) urgent(now time.Time) bool {
	return !t.expires.IsZero() && t.expires.Sub(now) < link.Lifetime(t.issued, t.expires)/10
}

// certifyStep says what to send now, and how long to wait.
type certifyStep struct {
	trust bool
	renew string // the reason; empty: not now
	wait  time.Duration
}

// decide returns the next step by the hub's clock, and records what is sent.
func (t *certifying) decide(now time.Time, trust authority.Trust, trusts string) certifyStep {
	out := certifyStep{wait: lookAgain}
	sooner := func(at time.Time) { out.wait = max(0, min(out.wait, at.Sub(now))) }
	if trusts != trust.Hash {
		if t.offered != trust.Hash || !now.Before(t.offerAt) {
			out.trust, t.offered, t.offerAt = true, trust.Hash, now.Add(offerEvery)
		}
		sooner(t.offerAt)
	}
	var reason string
	switch {
	case trust.Renew && t.issuer != trust.Signer:
		reason = "the CA is being replaced"
	case t.expires.IsZero():
		return out
	case !now.Before(t.renewAt):
		reason = "the certificate ends soon"
	default:
		sooner(t.renewAt)
		return out
	}
	if now.Before(t.askAt) {
		sooner(t.askAt)
		return out
	}
	t.askAt = now.Add(min(maxAskAgain, max(minAskAgain, t.expires.Sub(now)/4)))
	sooner(t.askAt)
	out.renew = reason
	return out
}
