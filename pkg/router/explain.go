// SPDX-License-Identifier: Apache-2.0

package router

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"navix.sh/atoll/pkg/plural"
)

// Explanation lists every candidate of a request: the eligible ones first, in the order in which they would be tried.
type Explanation struct {
	Reason     Reason // of the decision
	Candidates []Explained
}

// Explained is one candidate of an Explanation.
type Explained struct {
	Candidate
	Rank     int // from 1; 0: not eligible
	Tier     Tier
	Reason   Reason
	Health   Health
	Free     int32
	Waiting  int32         // claims that would wait before this one
	InFlight int32         // claims in flight that the member's counts do not include yet
	Age      time.Duration // of the cluster's data

	eligible bool
	key      uint64
	merit    int32
}

// Explain judges every candidate. Where Pick chooses at random among near-equal candidates, the order is the expected one; Chosen moves the
// candidate that Pick chose to the front. now is on the clock of Cluster.SetSeen.
func Explain(req *Request, view *View, now time.Duration) Explanation {
	out := Explanation{Reason: NoMembers, Candidates: make([]Explained, 0, view.Len())}
	if view.Len() == 0 {
		return out
	}
	selective := req.selective()
	for i := range view.Len() {
		c := view.Candidate(i)
		got := view.assess(req, selective, i)
		out.Candidates = append(out.Candidates, Explained{
			Candidate: c, Tier: got.tier, Reason: got.reason, Health: got.health, Free: max(0, got.free), Waiting: got.waiting,
			InFlight: max(0, got.inFlight-int32(c.Member().Claiming)), Age: max(0, now-c.Cluster.Seen()),
			eligible: got.reason == "", key: got.key, merit: got.merit(),
		})
	}
	slices.SortFunc(out.Candidates, inOrder)
	if !out.rank() {
		out.Reason = refusal(req, view, selective)
	}
	return out
}

func inOrder(a, b Explained) int {
	switch {
	case a.eligible && b.eligible:
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(b.merit, a.merit), compareNames(a.Candidate, b.Candidate))
	case a.eligible:
		return -1
	case b.eligible:
		return 1
	default:
		return compareNames(a.Candidate, b.Candidate)
	}
}

// Chosen moves the given candidate to the front, so that the explanation matches a past decision.
func (e *Explanation) Chosen(cluster, member string) {
	i := slices.IndexFunc(e.Candidates, func(c Explained) bool {
		return c.eligible && c.Cluster.ID == cluster && c.Member().Name == member
	})
	if i < 0 {
		return
	}
	chosen := e.Candidates[i]
	copy(e.Candidates[1:i+1], e.Candidates[:i])
	e.Candidates[0] = chosen
	e.rank()
}

// rank numbers the eligible candidates and sets the reason for their places. It reports whether there is an eligible candidate.
func (e *Explanation) rank() bool {
	n := 0
	for i := range e.Candidates {
		c := &e.Candidates[i]
		if !c.eligible {
			break
		}
		n++
		c.Rank = n
		if i > 0 {
			c.Reason = reasonBehind(&e.Candidates[0], c)
		}
	}
	if n == 0 {
		return false
	}
	first := &e.Candidates[0]
	first.Reason = OnlyCandidate
	if n > 1 {
		next := &e.Candidates[1]
		first.Reason = reasonAhead(first.key, next.key, first.merit, next.merit)
	}
	e.Reason = first.Reason
	return true
}

func reasonBehind(first, c *Explained) Reason {
	switch reasonAhead(first.key, c.key, first.merit, c.merit) {
	case FresherCluster:
		return ClusterSuspect
	case BetterTier:
		return WorseTier
	case PreferredByCall:
		return LessPreferred
	case LowerPriority:
		return HigherPriority
	case MostFree:
		return LessFree
	default:
		return NearEqual
	}
}

// Message describes the reason for the candidate's place.
func (c *Explained) Message() string {
	switch {
	case c.Rank > 0 && c.Tier.Idle():
		return fmt.Sprintf("%s free%s", plural.Of(c.Free, "idle Pod"), c.lateness())
	case c.Rank > 0:
		return fmt.Sprintf("no idle Pod free, and %s in a queue of %d%s",
			plural.Form(c.Waiting, "claim waits", "claims wait"), c.Member().QueueCapacity, c.lateness())
	}
	switch c.Reason {
	case NoIdlePod:
		return "no idle Pod free, and the request does not queue"
	case QueueFull:
		return fmt.Sprintf("no idle Pod free, and %s in a queue of %d",
			plural.Form(c.Member().Pending, "claim waits", "claims wait"), c.Member().QueueCapacity)
	case ClusterUnreachable:
		return fmt.Sprintf("nothing heard of the cluster for %s", c.Age.Round(time.Second))
	case ClusterQuarantined:
		return "two clusters claim this name"
	case ClusterDraining:
		return "the cluster is being drained and gets no new claims"
	case MemberMissing:
		return "the pool does not exist" + c.fault()
	case MemberInconsistent:
		return "the pool is not what the Env says" + c.fault()
	case MemberStateUnknown:
		return "the pool's state is not known to this version"
	case AlreadyRefused:
		return "refused this claim already"
	case NotServed:
		return "the cluster may not serve this namespace, team or Env (atollctl cluster set)"
	case ClusterNotRequested:
		return "the request binds itself to other clusters"
	case InstanceTypeMismatch:
		return fmt.Sprintf("instance type is %q", c.Member().Shape.Get().InstanceType)
	case MultiplierMismatch:
		return fmt.Sprintf("multiplier is %d", c.Member().Shape.Get().Multiplier)
	case ScalingGroupMismatch:
		return fmt.Sprintf("scaling group is %q", c.Member().Shape.Get().ScalingGroup)
	default:
		return string(c.Reason)
	}
}

// fault returns the problem with the Env that the cluster reports.
func (c *Explained) fault() string {
	if fault := c.Segment.Defaults.Get().Fault; fault != "" {
		return "; " + fault
	}
	return ""
}

func (c *Explained) lateness() string {
	switch c.Health {
	case Silent:
		return fmt.Sprintf("; nothing heard of the cluster for %s", c.Age.Round(time.Second))
	case NoReceipt:
		return "; the cluster did not confirm a dispatch in time"
	case Disconnected:
		return "; the cluster is not connected"
	default:
		return ""
	}
}
