// SPDX-License-Identifier: Apache-2.0

package agent

import federationv1 "navix.sh/atoll/api/federation/v1"

// maxUnacknowledged bounds the unacknowledged answers, because a Hello is one frame. The oldest are dropped first.
const maxUnacknowledged = 8192

// answered is a claim without a key whose answer was sent after the given number of heartbeats. Until the hub acknowledges a later
// heartbeat, the answer may be lost in a buffer on either side of the stream, and then no caller has the sandbox.
type answered struct {
	beats, dispatch uint64
	sandbox         string
}

// sentAnswer records an answer that hands out a sandbox.
func (u *uplink) sentAnswer(o answeredDispatch) {
	if !o.handsOutUnkeyed() {
		return
	}
	if len(u.unconfirmed) == maxUnacknowledged {
		u.unconfirmed = u.unconfirmed[1:]
	}
	u.unconfirmed = append(u.unconfirmed, answered{u.beats, o.dispatch.GetId(), o.answer.GetSandbox().GetId()})
}

// confirmed drops the answers before an acknowledged heartbeat, because the hub reads in order. It has read this stream's Hello as well.
func (u *uplink) confirmed(beat uint64) {
	n := 0
	for n < len(u.unconfirmed) && u.unconfirmed[n].beats < beat {
		n++
	}
	u.unconfirmed = u.unconfirmed[n:]
	u.agent.unacknowledged = u.agent.unacknowledged[u.named:]
	u.named = 0
}

// keepUnacknowledged keeps the answers that are unacknowledged at the end of a stream for the next Hello.
func (u *uplink) keepUnacknowledged(stream uint64) {
	a := u.agent
	for _, one := range u.unconfirmed {
		a.unacknowledged = append(a.unacknowledged, &federationv1.Unacknowledged{Stream: stream, Dispatch: one.dispatch, SandboxId: one.sandbox})
	}
	a.unacknowledged = a.unacknowledged[max(0, len(a.unacknowledged)-maxUnacknowledged):]
}
