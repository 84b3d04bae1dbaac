// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
)

// revocation is what the record of a name says of certificates. It is immutable.
type revocation struct {
	refused []string  // keys, under every name
	at      time.Time // those that were issued before it are refused under this name; zero: none
	since   []string  // keys that were issued since
}

// noteRevoked takes over what a record says of certificates.
func (f *Fleet) noteRevoked(id string, r *Record) {
	said := &revocation{refused: r.RevokedKeys(), at: r.RevokedAt, since: slices.Clone(r.Keys)}
	if len(said.refused) == 0 && said.at.IsZero() {
		f.revoked.Delete(id)
		return
	}
	f.revoked.Store(id, said)
}

// Revokes reports whether a certificate's key belongs to a removed cluster, under any name. A key that is not known does not.
func (f *Fleet) Revokes(key string) (revoked bool) {
	if key == "" {
		return false
	}
	f.revoked.Range(func(_, said any) bool {
		revoked = slices.Contains(said.(*revocation).refused, key)
		return !revoked
	})
	return revoked
}

// Refuses reports whether a peer's certificate was revoked: its key was, or it is older than the last revocation of its name.
func (f *Fleet) Refuses(peer Peer) bool { return f.Revokes(peer.Key) || f.predates(peer) }

// predates reports whether a peer's certificate was issued before those of its name were revoked. It finds those whose keys the record has
// dropped.
func (f *Fleet) predates(peer Peer) bool {
	said, is := f.revoked.Load(peer.ClusterID)
	return is && said.(*revocation).predates(peer)
}

func (r *revocation) predates(peer Peer) bool {
	// Without a key it is a session at another replica, which looks at it itself.
	return peer.Key != "" && !peer.Issued.IsZero() && latestIssue(peer).Before(r.at) && !slices.Contains(r.since, peer.Key)
}

// clockTolerance is by how much clocks may differ (I11).
const clockTolerance = 10 * time.Minute

// latestIssue is the latest time at which a peer's certificate may have been issued, by the hub's clock. Of a short life a tenth is
// tolerated, in which a cluster gets fewer certificates than its record has keys. A certificate that is not backdated, as cert-manager's,
// counts as issued an hour later.
func latestIssue(peer Peer) time.Time {
	return peer.Issued.Add(link.Backdate + min(clockTolerance, link.Lifetime(peer.Issued, peer.Expires)/10))
}

// Refusal is why a peer is refused whatever it says: its certificate was revoked. None: it was not.
func (f *Fleet) Refusal(peer Peer) Refusal {
	if !f.Refuses(peer) {
		return None
	}
	if c := f.cluster(peer.ClusterID); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.keyRevoked(peer) {
			return RefusedRevoked
		}
	}
	return RefusedForgotten
}

// Refuse counts a refusal, and returns what the worker is told. uid is what the cluster says that it has; empty: not known.
func (f *Fleet) Refuse(peer Peer, why Refusal, uid string) *federationv1.Refused {
	f.metrics.refused.WithLabelValues(string(why)).Inc()
	f.log.Info("Refusing a stream", "cluster", peer.ClusterID, "reason", why, "clusterUID", uid)
	return refused(why)
}

// keyRevoked reports whether the cluster that has the name is registered, and the certificate is not its any more. Called with mu held.
func (c *cluster) keyRevoked(peer Peer) bool {
	return c.record.UID != "" && (slices.Contains(c.record.RefusedKeys, peer.Key) || c.fleet.predates(peer))
}
