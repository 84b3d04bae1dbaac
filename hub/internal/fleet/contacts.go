// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/segment"
)

const (
	contactWindow   = time.Minute
	maxContacts     = 32
	maxAlternations = 3
	// maxBeside contacts span at least 30 s, because a refusal carries a retry delay. No replaced leader lives that long.
	maxBeside        = 3
	quarantinePeriod = 5 * time.Minute
)

// noteContact records a contact. It quarantines the cluster when two terms alternate, or when one keeps connecting while another is
// healthy: both mean two clusters with one identity. The quarantine lasts as long as both keep connecting. Called with mu held.
func (c *cluster) noteContact(seen contact) {
	n, now := len(c.contacts), seen.at
	otherTerm := n > 0 && c.contacts[n-1].term != seen.term
	c.contacts = slices.DeleteFunc(c.contacts, func(before contact) bool { return now-before.at >= contactWindow })
	c.contacts = append(c.contacts, seen)
	c.contacts = slices.Delete(c.contacts, 0, max(0, len(c.contacts)-maxContacts))
	two := alternations(c.contacts) >= maxAlternations || persistent(c.contacts) >= maxBeside
	if !two && (!otherTerm || !c.isQuarantined(now)) {
		return
	}
	c.quarantineUntil(now + quarantinePeriod)
	if s := c.session.Swap(nil); s != nil {
		c.setAttached(false)
		s.end()
		c.relayDetached(s)
	}
	// evaluate skips if mu is taken, as it is here; the next tick updates the others.
	c.evaluate()
}

// relayContact sends all peers a hello that may come from a second cluster with this identity. Called with mu held.
func (c *cluster) relayContact(uid, term string, beside bool) {
	for _, r := range c.fleet.relayed() {
		r.contact(c, &federationv1.RelayContact{ClusterId: c.ID, ClusterUid: uid, Term: term, Beside: beside})
	}
}

// contact queues a hello for the peer. It keeps the last maxContacts hellos of a cluster.
func (r *Relay) contact(c *cluster, seen *federationv1.RelayContact) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.contacts[c] = append(r.contacts[c], seen)
	r.contacts[c] = slices.Delete(r.contacts[c], 0, max(0, len(r.contacts[c])-maxContacts))
	r.wake.give()
}

// popContact removes one queued contact and returns its frame, or nil if there is none. Called with the lock held.
func (r *Relay) popContact() *federationv1.RelayFrame {
	for c, waiting := range r.contacts {
		if r.contacts[c] = waiting[1:]; len(waiting) == 1 {
			delete(r.contacts, c)
		}
		return &federationv1.RelayFrame{Body: &federationv1.RelayFrame_Contact{Contact: waiting[0]}}
	}
	return nil
}

// contact records a hello that the peer received. It ignores a cluster that this replica does not know or that has another uid.
func (i *Inlet) contact(seen *federationv1.RelayContact) error {
	if err := checkClusterID(seen.GetClusterId()); err != nil {
		return err
	}
	if term := seen.GetTerm(); term == "" || len(term) > segment.MaxUID {
		return fmt.Errorf("%w: term %s, want 1 to %d bytes", ErrRelay, segment.Quote(term), segment.MaxUID)
	}
	c := i.fleet.cluster(seen.GetClusterId())
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.record.UID != "" && c.record.UID == seen.GetClusterUid() {
		c.noteContact(contact{seen.GetTerm(), i.fleet.now(), seen.GetBeside()})
	}
	return nil
}
