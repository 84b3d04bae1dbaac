// SPDX-License-Identifier: Apache-2.0

package router

import (
	"math"

	"navix.sh/atoll/pkg/segment"
)

// Decision is the candidate for a claim. If there is none, Index is -1 and Reason is why.
type Decision struct {
	Index      int
	Tier       Tier
	LastChoice bool
	Reason     Reason
}

// OK reports whether there is a candidate.
func (d Decision) OK() bool { return d.Index >= 0 }

// A key holds all policies that are not a matter of degree, most significant first, so that one comparison applies them in
// order:
//
//	bits 61–63 free
//	bit 60     the cluster is the last choice
//	bit 59     free
//	bits 56–58 tier
//	bits 32–55 the caller's order of clusters
//	bits 0–31  priority
const (
	tierShift     = 56
	tierMask      = 7
	lastChoiceBit = 1 << 60
	orderShift    = 32
	maxOrder      = 1<<24 - 1
	noKey         = math.MaxUint64
)

// maxInFlight keeps sums of counts within their type.
const maxInFlight = 1 << 29

// maxMerit is the merit of an empty queue. It is high enough that merits of long queues differ where their lengths are not
// near-equal.
const maxMerit = 1 << 30

// The random factor of a candidate's merit lies between jitterMin and jitterMax.
const (
	jitterMax  = 256
	jitterMask = 63
	jitterMin  = jitterMax - jitterMask
)

func priorityBits(p int32) uint64 { return uint64(uint32(p) ^ 1<<31) }

// verdict is the judgement of one candidate.
type verdict struct {
	reason   Reason // why it is not eligible, or empty
	tier     Tier
	health   Health
	key      uint64
	free     int32 // idle Pods or free places in the queue, by tier
	waiting  int32 // waiting claims, in a tier where claims wait
	inFlight int32
}

// Pick chooses a candidate. rnd is one random number per call; it breaks near-ties.
func Pick(req *Request, view *View, rnd uint64) Decision {
	if view.Len() == 0 {
		return Decision{Index: -1, Tier: NoTier, Reason: NoMembers}
	}
	lead := leader{index: -1, key: noKey, second: noKey}
	selective := req.selective()
	for i := range view.hot {
		if got := view.assess(req, selective, i); got.reason == "" {
			lead.offer(i, &got, int64(got.merit())*(jitterMax-int64(mix(rnd, i)&jitterMask)))
		}
	}
	if lead.index < 0 {
		return Decision{Index: -1, Tier: NoTier, Reason: refusal(req, view, selective)}
	}
	return Decision{
		Index:      lead.index,
		Tier:       Tier(lead.key >> tierShift & tierMask),
		LastChoice: lead.key&lastChoiceBit != 0,
		Reason:     reasonAhead(lead.key, lead.second, lead.merit, lead.runnerUp),
	}
}

// leader is the best candidate so far, and the data that explains why.
type leader struct {
	index    int
	key      uint64
	score    int64
	merit    int32
	second   uint64 // the next best key
	runnerUp int32  // the highest merit of another candidate with the same key
}

func (l *leader) offer(i int, got *verdict, score int64) {
	merit := got.merit()
	switch {
	case got.key < l.key:
		*l = leader{index: i, key: got.key, score: score, merit: merit, second: l.key}
	case got.key > l.key:
		l.second = min(l.second, got.key)
	case score > l.score:
		*l = leader{index: i, key: l.key, score: score, merit: merit, second: l.key, runnerUp: max(l.runnerUp, l.merit)}
	default:
		l.second, l.runnerUp = l.key, max(l.runnerUp, merit)
	}
}

// merit compares candidates with the same key, and near-equal is relative to it: idle Pods, or the shortness of the queue. Free
// places in queues do not count; because most of a long queue is always free.
func (v *verdict) merit() int32 {
	if v.tier.Idle() {
		return v.free
	}
	return maxMerit / (1 + v.waiting)
}

// assess applies all policies to one candidate except the comparison of merits.
func (v *View) assess(req *Request, selective bool, i int) verdict {
	h := &v.hot[i]
	var got verdict
	got.inFlight = min(max(0, h.inFlight.Load()), maxInFlight)
	got.tier, got.free, got.waiting = h.serve(got.inFlight)
	got.health = h.cluster.Health()
	if s := h.cluster.scope.Load(); s != nil && !s.Serves(req.Team, v.segments[i].Key()) {
		got.tier, got.reason = NoTier, NotServed
		return got
	}
	got.key = uint64(got.tier)<<tierShift | priorityBits(h.priority)
	if got.health != Fresh {
		if !got.health.Eligible() {
			if got.reason = req.unsuited(v.Candidate(i)); got.reason == "" { // that it would not suit, lasts longer
				got.reason = unhealthy(got.health)
			}
			return got
		}
		got.key |= lastChoiceBit
	}
	switch {
	case h.flags&flagUsable == 0:
		got.tier, got.reason = NoTier, unusable(v.Candidate(i).Member().State)
	case selective:
		got.key |= req.callerOrder(h.cluster.ID) << orderShift
		got.reason = req.mismatch(v.Candidate(i))
	case h.flags&flagDefaultShape == 0:
		got.reason = req.mismatch(v.Candidate(i))
	}
	if got.reason != "" {
		return got
	}
	if req.NoQueue && !got.tier.Idle() {
		got.reason = NoIdlePod
	} else if got.free <= 0 {
		got.reason = QueueFull
	}
	return got
}

// serve returns the member's tier with claims in flight deducted, what is left of the tier's resource, and how many claims wait.
func (h *hot) serve(inFlight int32) (tier Tier, free, waiting int32) {
	without := max(0, inFlight-int32(h.claiming)) // a Pod
	if free := int32(h.ready) - without; free > 0 {
		return idleTier(h.flags), free, 0
	}
	// Claims in flight beyond the idle Pods will wait in the queue.
	more := without - int32(h.ready)
	return waitTier(h.flags), h.room - more, int32(h.waiting) + more
}

func unhealthy(h Health) Reason {
	switch h {
	case Quarantined:
		return ClusterQuarantined
	case Draining:
		return ClusterDraining
	default:
		return ClusterUnreachable
	}
}

func unusable(s segment.State) Reason {
	switch s {
	case segment.Missing:
		return MemberMissing
	case segment.Inconsistent:
		return MemberInconsistent
	default:
		return MemberStateUnknown
	}
}

// reasonAhead names the policy that separates the best key from the second.
func reasonAhead(best, second uint64, bestMerit, secondMerit int32) Reason {
	differ := best ^ second
	switch {
	case second == noKey:
		return OnlyCandidate
	case differ&lastChoiceBit != 0:
		return FresherCluster
	case differ>>tierShift != 0:
		return BetterTier
	case differ>>orderShift != 0:
		return PreferredByCall
	case differ != 0:
		return LowerPriority
	case nearEqual(bestMerit, secondMerit):
		return NearEqual
	default:
		return MostFree
	}
}

// nearEqual reports whether the random factors can swap two merits.
func nearEqual(a, b int32) bool {
	return int64(min(a, b))*jitterMax >= int64(max(a, b))*jitterMin
}

// refusal explains why no candidate is eligible.
func refusal(req *Request, view *View, selective bool) Reason {
	for _, reason := range hope {
		for i := range view.hot {
			if view.assess(req, selective, i).reason == reason {
				return reason
			}
		}
	}
	return QueueFull // a candidate's state improved during the pick
}

// mix derives the i-th random number from one.
func mix(rnd uint64, i int) uint64 {
	x := rnd + uint64(i)*0x9E3779B97F4A7C15
	x ^= x >> 32
	x *= 0xD6E8FEB86659FD93
	return x >> 48
}
