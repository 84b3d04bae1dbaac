// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"fmt"
	"slices"
	"strings"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/patch"
)

// user is a pool that names a template.
type user struct {
	Pool string // namespace/name
	Env  string // namespace/name of the owning Env, or empty
	// Revision is the revision of the template that the pool was made from. It is "" if nothing was copied, or it was not recorded.
	Revision string
}

// snapshot is the input of the decision about a template's conditions.
type snapshot struct {
	Version, Revision string
	Faults            []error
	// Deleting is set if the template is being deleted and has a finalizer.
	Deleting bool
	Pools    []user
	// Envs are those that name the template, with or without pools.
	Envs []string
}

// named is how many users a message names.
const named = 5

// decide returns the conditions of a template.
func decide(s *snapshot) []patch.Condition {
	return []patch.Condition{available(s), degraded(s)}
}

func available(s *snapshot) patch.Condition {
	const condition = v1alpha1.SandboxTemplateConditionAvailable
	if len(s.Faults) > 0 {
		return patch.False(condition, v1alpha1.ReasonTemplateInvalid, Sentence(s.Faults))
	}
	return patch.True(condition, v1alpha1.ReasonValidated,
		clip.Text(fmt.Sprintf("version %q, revision %s; %s", s.Version, s.Revision, usage(s)), LongestMessage))
}

func degraded(s *snapshot) patch.Condition {
	const condition = v1alpha1.SandboxTemplateConditionDegraded
	older := s.older()
	switch {
	case len(s.Faults) > 0:
		message := "no Pods can be made from it; " + usage(s)
		if len(s.Pools) > 0 {
			message += ", which go on with what they were made from"
		}
		return patch.True(condition, v1alpha1.ReasonTemplateInvalid, clip.Text(message, LongestMessage))
	case s.Deleting && len(s.Pools)+len(s.Envs) > 0:
		return patch.True(condition, v1alpha1.ReasonTemplateDeleted,
			clip.Text("being deleted; "+usage(s)+", which go on with what they were made from, and cannot be made anew", LongestMessage))
	case len(older) > 0:
		return patch.True(condition, v1alpha1.ReasonOlderRevisionsInUse, clip.Text(fmt.Sprintf(
			"pools of other revisions than %s go on with what they were made from: %s", s.Revision, list(older)), LongestMessage))
	}
	return patch.False(condition, v1alpha1.ReasonAllCurrent, "all pools that name it have this revision")
}

// older returns the pools of other revisions, with those revisions.
func (s *snapshot) older() []string {
	var out []string
	for _, u := range s.Pools {
		if u.Revision != "" && u.Revision != s.Revision {
			out = append(out, u.Pool+" at "+u.Revision)
		}
	}
	return out
}

// usage returns which pools and Envs use a template.
func usage(s *snapshot) string {
	if len(s.Pools)+len(s.Envs) == 0 {
		return "nothing uses it"
	}
	var alone []string
	current := 0
	for _, u := range s.Pools {
		if u.Env == "" {
			alone = append(alone, u.Pool)
		}
		if u.Revision == s.Revision {
			current++
		}
	}
	parts := []string{fmt.Sprintf("pools: %d, of this revision: %d", len(s.Pools), current)}
	if len(s.Envs) > 0 {
		parts = append(parts, "Envs: "+list(s.Envs))
	}
	if len(alone) > 0 {
		parts = append(parts, "pools without an Env: "+list(alone))
	}
	return strings.Join(parts, "; ")
}

// list names the first few, in order, and counts the others.
func list(names []string) string {
	return clip.Names(slices.Sorted(slices.Values(names)), named)
}
