// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"time"

	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

// Refusal is the reason why the hub refuses a stream.
type Refusal string

// The values of Refused.reason. None is no refusal.
const (
	None                Refusal = ""
	IdentityMismatch    Refusal = "IdentityMismatch"
	RefusedQuarantined  Refusal = "Quarantined"
	OlderStream         Refusal = "OlderStream"
	ProtocolUnsupported Refusal = "ProtocolUnsupported"
	RegistryUnavailable Refusal = "RegistryUnavailable"
	RefusedForgotten    Refusal = "Forgotten"
	RefusedRevoked      Refusal = "Revoked" // the certificate's key
	RefusedInvalid      Refusal = "Invalid" // a field of the hello is out of bounds
)

// streamID is one stream of one leadership term.
type streamID struct {
	term        string
	incarnation uint64
	stream      uint64
}

// helloFacts are the inputs of decideHello.
type helloFacts struct {
	protocol      uint32
	uid           string
	registeredUID string // empty: the name is free
	forgotten     bool   // an operator has removed the cluster with this uid
	revoked       bool   // the name or the certificate is revoked
	keyRevoked    bool   // the name's cluster is registered and the certificate was revoked
	quarantined   bool
	hello         streamID
	last          streamID // of the last stream that was attached; the zero value if there was none
	alive         bool     // the last stream is attached and not silent
}

// decideHello decides whether a stream may become the cluster's stream at this hub.
//
// Within a term the higher stream number wins, even if the other stream has ended: a late connection attempt must not replace its
// successor. Between terms the higher incarnation wins. A term whose incarnation is not higher is admitted only when the other stream is
// gone or silent: its worker may have lost its state, and gets the highest incarnation in the Welcome. While another leader is healthy,
// such a term is more likely a replaced leader.
func decideHello(f helloFacts) Refusal {
	switch {
	case f.protocol != protocolVersion:
		return ProtocolUnsupported
	case f.keyRevoked:
		return RefusedRevoked
	case f.revoked: // for every uid
		return RefusedForgotten
	case f.uid == "" || f.registeredUID != "" && f.uid != f.registeredUID:
		return IdentityMismatch
	case f.forgotten:
		return RefusedForgotten
	case f.quarantined:
		return RefusedQuarantined
	case f.hello.term == f.last.term:
		if f.hello.stream <= f.last.stream {
			return OlderStream
		}
	case f.alive && f.hello.incarnation <= f.last.incarnation:
		return OlderStream
	}
	return None
}

// relayedFacts are the inputs of decideRelayed.
type relayedFacts struct {
	uid           string
	registeredUID string
	unknown       bool // this replica knows of no registration of the name
	forgotten     bool
	quarantined   bool
	stream        streamID
	last          streamID // of the last session, direct or relayed
	highest       uint64   // highest incarnation that this replica knows
	attached      bool     // the last session has not ended
	direct        bool     // the last session has not ended and is a stream of this replica
}

// decideRelayed decides whether a stream that is attached to a peer becomes the cluster's session at this replica. The highest
// (incarnation, stream) wins, whichever replica announces it first. If the registry here does not have the name yet, the peer's
// registration is accepted. A name whose cluster was forgotten is refused until the registry has the new registration.
func decideRelayed(f relayedFacts) Refusal {
	switch {
	case f.forgotten || f.registeredUID == "" && !f.unknown:
		return RefusedForgotten
	case f.uid == "" || f.registeredUID != "" && f.uid != f.registeredUID:
		return IdentityMismatch
	case f.quarantined:
		return RefusedQuarantined
	case f.stream.incarnation < f.highest:
		return OlderStream
	case f.stream.term == f.last.term:
		if f.stream.stream < f.last.stream || f.stream.stream == f.last.stream && f.direct {
			return OlderStream
		}
	case f.attached && f.stream.incarnation <= f.last.incarnation:
		return OlderStream
	}
	return None
}

// wentBack reports whether a cluster's etcd is at an earlier revision than before. 0 means unknown.
func wentBack(now, before uint64) bool { return now > 0 && now < before }

// contact is one hello of the registered cluster.
type contact struct {
	term string
	at   time.Duration
	// another term's stream was healthy and could not be replaced
	beside bool
}

// persistent counts the contacts of the latest term that arrived while another term's stream was healthy. A replaced leader connects once
// or twice before it learns of its replacement. A cluster that was displaced by its own copy connects again and again.
func persistent(contacts []contact) int {
	n, term := 0, contacts[len(contacts)-1].term
	for _, c := range contacts {
		if c.beside && c.term == term {
			n++
		}
	}
	return n
}

// alternations counts how often a term returned after another one had replaced it. A worker that restarts has a new term each time and
// never alternates. Two clusters with one identity (a copied etcd) do.
func alternations(contacts []contact) int {
	n := 0
	for i := 2; i < len(contacts); i++ {
		if contacts[i].term == contacts[i-1].term {
			continue
		}
		for j := range i - 1 {
			if contacts[j].term == contacts[i].term {
				n++
				break
			}
		}
	}
	return n
}

// decideRemovals decides which Envs that a complete report omits are removed; of is the number of all Envs. A mass removal counts only when
// a second complete report omits the same Envs. Until then they are suspects.
func decideRemovals(leftOut []segment.Key, of int, suspects map[segment.Key]struct{}) (
	remove []segment.Key, newSuspects map[segment.Key]struct{},
) {
	var unconfirmed []segment.Key
	for _, k := range leftOut {
		if _, twice := suspects[k]; twice {
			remove = append(remove, k)
		} else {
			unconfirmed = append(unconfirmed, k)
		}
	}
	if !massive(len(unconfirmed), of) {
		return append(remove, unconfirmed...), nil
	}
	newSuspects = make(map[segment.Key]struct{}, len(unconfirmed))
	for _, k := range unconfirmed {
		newSuspects[k] = struct{}{}
	}
	return remove, newSuspects
}

// massive reports whether a removal is over 30 % and more than a handful.
func massive(removed, of int) bool {
	return removed > handful && removed*100 > massRemovalPercent*of
}

// healthFacts are the inputs of decideHealth, in times on the hub's monotonic clock.
type healthFacts struct {
	now         time.Duration
	quarantined bool
	seen        bool          // this hub process has received a frame of the cluster
	lastSeen    time.Duration // last frame
	goodSince   time.Duration // start of the run of frames without a gap of lastChoiceAfter
	attached    bool
	noReceipt   bool          // a dispatch got no receipt in time, and none has arrived since
	noReceiptAt time.Duration // when that dispatch timed out
	marked      bool          // this hub process marked the cluster unreachable after it had received frames of it
}

// decideHealth decides a cluster's health. A cluster that this process has marked unreachable must first send frames without a gap for
// recoverAfter. A cluster without a frame since this process started need not.
//
// A missing receipt no longer counts once a receipt arrives, or after recoverAfter; because the last choice gets no dispatches and would
// never send a receipt.
func decideHealth(f healthFacts) router.Health {
	silence := f.now - f.lastSeen
	switch {
	case f.quarantined:
		return router.Quarantined
	case !f.seen || silence >= unreachableAfter:
		return router.Unreachable
	case f.marked && (!f.attached || silence >= lastChoiceAfter || f.now-f.goodSince < recoverAfter):
		return router.Unreachable
	case !f.attached:
		return router.Disconnected
	case silence >= lastChoiceAfter:
		return router.Silent
	case f.noReceipt && f.now-f.noReceiptAt < recoverAfter:
		return router.NoReceipt
	default:
		return router.Fresh
	}
}

// decideRouted returns the health that routing uses. An eligible cluster that drains becomes Draining, and gets no new claims.
func decideRouted(h router.Health, draining bool) router.Health {
	if draining && h.Eligible() {
		return router.Draining
	}
	return h
}

// forgettable reports whether a cluster may be removed. A cluster that is attached and takes claims may not: that would be a mistake.
func forgettable(attached, draining bool) bool { return draining || !attached }

// deltaFacts are the inputs of decideDeltas: the worker's last acknowledged report according to its hello, and this replica's view.
type deltaFacts struct {
	known, recovering, restored, suspects bool
	acknowledgedTerm, term                string
	acknowledged, order                   segment.Order
	acknowledgedDigest, digest            uint64
}

// decideDeltas reports whether a stream may start with deltas. It may if this replica has the view that the worker last reported in the
// same term, from its own streams or by relay, and if nothing else requires a complete report.
func decideDeltas(f deltaFacts) bool {
	return f.known && !f.recovering && !f.restored && !f.suspects && f.acknowledged.Sequence > 0 &&
		f.acknowledgedTerm == f.term && f.acknowledged == f.order && f.acknowledgedDigest == f.digest
}
