// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// Refusal is why a peer is refused whatever it says: its certificate was revoked. None: it was not.
func (f *Fleet) Refusal(peer Peer) Refusal {
	if !f.Revokes(peer.Key) {
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

// keyRevoked reports whether the cluster that has the name is registered, and the certificate's key is not its any more. Called with mu
// held.
func (c *cluster) keyRevoked(peer Peer) bool {
	return c.record.UID != "" && slices.Contains(c.record.RefusedKeys, peer.Key)
}
