// SPDX-License-Identifier: Apache-2.0

// Package visibility decides which tenants see a SandboxTemplate. It is pure.
//
// In: spec.visibility and a caller. Out: whether the caller sees the template. Rules are alternatives. Within a rule, team and user must
// both match, and an empty field matches every caller. Without rules a template is public. Visibility affects only what is shown: hiding a
// template does not hide Envs that use it.
package visibility

import (
	"slices"

	"navix.sh/atoll/api/v1alpha1"
)

// Caller is the caller of a request. An empty field matches only rules that leave that field empty.
type Caller struct{ Team, User string }

// Sees reports whether a caller sees a template with this visibility.
func (c Caller) Sees(v *v1alpha1.TemplateVisibility) bool {
	return v == nil || len(v.Rules) == 0 || slices.ContainsFunc(v.Rules, c.matches)
}

func (c Caller) matches(rule v1alpha1.TemplateVisibilityRule) bool {
	return (rule.Team == "" || rule.Team == c.Team) && (len(rule.Users) == 0 || c.User != "" && slices.Contains(rule.Users, c.User))
}

// Seen returns the templates that a caller sees, in order.
func (c Caller) Seen(templates []v1alpha1.SandboxTemplate) []v1alpha1.SandboxTemplate {
	var out []v1alpha1.SandboxTemplate
	for i := range templates {
		if c.Sees(templates[i].Spec.Visibility) {
			out = append(out, templates[i])
		}
	}
	return out
}
