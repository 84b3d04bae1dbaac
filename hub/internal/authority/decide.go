// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"slices"
	"time"

	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/hubstate"
)

// stepFacts are the inputs of decideStep.
type stepFacts struct {
	step     hubstate.RotationStep
	skip     bool // an operator skips the waiting
	settled  bool // the step has lasted long enough for every replica to know it
	bundle   string
	signer   string
	clusters []fleet.Credential
}

// decideStep returns the next step, and the clusters that are behind. While clusters are behind it returns the current step.
func decideStep(f stepFacts) (next hubstate.RotationStep, behind []string) {
	if f.step == hubstate.Stable {
		return hubstate.Stable, nil
	}
	for _, c := range f.clusters {
		if c.Away || c.Trust == "" {
			continue
		}
		late := c.Trust != f.bundle
		if f.step == hubstate.Renewing {
			late = c.Issuer != f.signer
		}
		if late {
			behind = append(behind, c.ClusterID)
		}
	}
	slices.Sort(behind)
	if !f.settled || len(behind) > 0 && !f.skip {
		return f.step, behind
	}
	return following(f.step), nil
}

func following(step hubstate.RotationStep) hubstate.RotationStep {
	switch step {
	case hubstate.Stable:
		return hubstate.Distributing
	case hubstate.Distributing:
		return hubstate.Renewing
	case hubstate.Renewing:
		return hubstate.Dropping
	default:
		return hubstate.Stable
	}
}

// signerOf returns the index of the CA that signs.
func signerOf(s *hubstate.Authority) int {
	if s.Step == hubstate.Distributing {
		return 0
	}
	return len(s.CAs) - 1
}

// trusted returns the indexes of the CAs that both sides trust.
func trusted(s *hubstate.Authority) []int {
	if s.Step == hubstate.Distributing || s.Step == hubstate.Renewing {
		return []int{0, len(s.CAs) - 1}
	}
	return []int{len(s.CAs) - 1}
}

// advance moves the state to a step.
func advance(s *hubstate.Authority, to hubstate.RotationStep, now time.Time) {
	s.Step, s.Since, s.Skip = to, now.UTC(), false
	s.Generation++
	switch to {
	case hubstate.Stable:
		s.CAs = s.CAs[len(s.CAs)-1:]
	case hubstate.Renewing:
		// Tokens name the previous CA. An invitation that waits for an approval goes with its request; because otherwise its cluster would ask
		// until it expires, and no admin could approve it.
		s.Invitations, s.Waiting = slices.DeleteFunc(s.Invitations, func(i hubstate.Invitation) bool { return !i.Granted }), nil
	}
}

// sweep removes expired invitations, and requests whose invitation was removed.
func sweep(s *hubstate.Authority, now time.Time) {
	s.Invitations = slices.DeleteFunc(s.Invitations, func(i hubstate.Invitation) bool { return !now.Before(i.Expires) })
	s.Waiting = slices.DeleteFunc(s.Waiting, func(j hubstate.Joiner) bool { return invitation(s, j.Invitation) < 0 })
}

// invitation returns the index of an invitation, or -1.
func invitation(s *hubstate.Authority, id string) int {
	return slices.IndexFunc(s.Invitations, func(i hubstate.Invitation) bool { return i.ID == id })
}

const (
	// renewAt is the part of a certificate's lifetime that is left when it is renewed. A random part of up to renewSpread is added, so that
	// the certificates of clusters that joined together are not renewed together.
	renewAt     = 0.20
	renewSpread = 0.05
)

// RenewalAt returns when a certificate that is valid from notBefore to notAfter is renewed. chance is in [0, 1).
func RenewalAt(notBefore, notAfter time.Time, backdate time.Duration, chance float64) time.Time {
	life := notAfter.Sub(notBefore) - backdate
	if life <= 0 { // not from this CA
		life = notAfter.Sub(notBefore)
	}
	return notAfter.Add(-time.Duration(float64(life) * (renewAt + renewSpread*chance)))
}
