// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
)

// revocation holds the revoked certificates in the record of a name. It is immutable.
type revocation struct {
	refused []string  // keys, under every name
	at      time.Time // certificates issued before it are refused under this name; zero: none
	since   []string  // keys that were issued since
}

// noteRevoked applies the revocations in a record.
func (f *Fleet) noteRevoked(id string, r *Record) {
	next := &revocation{refused: r.RevokedKeys(), at: r.RevokedAt, since: slices.Clone(r.Keys)}
	if len(next.refused) == 0 && next.at.IsZero() {
		f.revoked.Delete(id)
		return
	}
	f.revoked.Store(id, next)
}

// Revokes reports whether a certificate's key was revoked, under any name. It returns false for an unknown key.
func (f *Fleet) Revokes(key string) (revoked bool) {
	if key == "" {
		return false
	}
	f.revoked.Range(func(_, one any) bool {
		revoked = slices.Contains(one.(*revocation).refused, key)
		return !revoked
	})
	return revoked
}

// Refuses reports whether a peer's certificate was revoked: its key was, or it is older than the last revocation of its name.
func (f *Fleet) Refuses(peer Peer) bool { return f.Revokes(peer.Key) || f.predates(peer) }

// predates reports whether a peer's certificate was issued before the last revocation of its name. It covers certificates whose keys the
// record has dropped.
func (f *Fleet) predates(peer Peer) bool {
	known, is := f.revoked.Load(peer.ClusterID)
	return is && known.(*revocation).predates(peer)
}

func (r *revocation) predates(peer Peer) bool {
	// A peer without a key is a session at another replica, which checks it itself.
	return peer.Key != "" && !peer.Issued.IsZero() && latestIssue(peer).Before(r.at) && !slices.Contains(r.since, peer.Key)
}

// clockTolerance is the maximum difference between clocks that is tolerated (I11).
const clockTolerance = 10 * time.Minute

// latestIssue returns the latest time at which a peer's certificate may have been issued, by the hub's clock. For a short lifetime the
// tolerance is a tenth of it. In that time a cluster gets fewer certificates than its record has keys. A certificate that is not backdated,
// as one of cert-manager, counts as issued an hour later.
func latestIssue(peer Peer) time.Time {
	return peer.Issued.Add(link.Backdate + min(clockTolerance, link.Lifetime(peer.Issued, peer.Expires)/10))
}

// Refusal returns the reason to refuse a peer with a revoked certificate, or None if the certificate was not revoked.
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

// Refuse counts a refusal and returns the message to the worker. uid is the uid that the cluster claims to have, or "" if it is not known.
func (f *Fleet) Refuse(peer Peer, why Refusal, uid string) *federationv1.Refused {
	f.metrics.refused.WithLabelValues(string(why)).Inc()
	f.log.Info("Refusing a stream", "cluster", peer.ClusterID, "reason", why, "clusterUID", uid)
	return refused(why)
}

// keyRevoked reports whether the name has a registered cluster and the certificate was revoked. Called with mu held.
func (c *cluster) keyRevoked(peer Peer) bool {
	return c.record.UID != "" && (slices.Contains(c.record.RefusedKeys, peer.Key) || c.fleet.predates(peer))
}
