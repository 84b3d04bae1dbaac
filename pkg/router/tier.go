// SPDX-License-Identifier: Apache-2.0

package router

// Tier is how well a candidate could serve a claim; lower is better.
type Tier uint8

// The tiers.
const (
	FreshIdle      Tier = iota // has an idle Pod and may grow
	SaturatedIdle              // has an idle Pod and cannot replace it
	CanGrow                    // the claim waits for a new Pod
	CanQueue                   // the claim waits for another sandbox to be released
	SaturatedQueue             // the same, and the pool cannot grow
	NoTier                     // cannot serve the claim
)

func (t Tier) String() string {
	switch t {
	case FreshIdle:
		return "FreshIdle"
	case SaturatedIdle:
		return "SaturatedIdle"
	case CanGrow:
		return "CanGrow"
	case CanQueue:
		return "CanQueue"
	case SaturatedQueue:
		return "SaturatedQueue"
	default:
		return ""
	}
}

// Idle reports whether the claim would be served without waiting for a Pod.
func (t Tier) Idle() bool { return t <= SaturatedIdle }

func idleTier(flags uint8) Tier {
	if flags&flagSaturated != 0 {
		return SaturatedIdle
	}
	return FreshIdle
}

func waitTier(flags uint8) Tier {
	switch {
	case flags&flagSaturated != 0:
		return SaturatedQueue
	case flags&flagCanGrow != 0:
		return CanGrow
	default:
		return CanQueue
	}
}
