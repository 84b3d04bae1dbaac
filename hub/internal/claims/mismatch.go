// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"slices"
	"strings"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/validate"
)

// maxChoices is the number of values that an error lists.
const maxChoices = 10

// mismatch returns a text with the field of a request whose value no member of the Env has, the value, and the members' values.
func mismatch(req *sandboxv1.CreateSandboxRequest, reason router.Reason, view *router.View) string {
	field, asked := "", ""
	var of func(c router.Candidate) string
	switch reason {
	case router.ClusterNotRequested:
		field, asked = "clusters", strings.Join(req.GetClusters(), ", ")
		of = func(c router.Candidate) string { return c.Cluster.ID }
	case router.InstanceTypeMismatch:
		field, asked = "instanceType", req.GetInstanceType()
		of = func(c router.Candidate) string { return c.Member().Shape.Get().InstanceType }
	case router.MultiplierMismatch:
		field, asked = "multiplier", fmt.Sprint(req.GetMultiplier())
		of = func(c router.Candidate) string { return fmt.Sprint(c.Member().Shape.Get().Multiplier) }
	case router.ScalingGroupMismatch:
		field, asked = "scalingGroup", req.GetScalingGroup()
		of = func(c router.Candidate) string { return c.Member().Shape.Get().ScalingGroup }
	}
	if reason == router.NotServed {
		return fmt.Sprintf("no cluster that has the Env may serve team %q in namespace %q", validate.Clip(req.GetTeam()),
			validate.Clip(req.GetNamespace()))
	}
	if of == nil || view == nil {
		return "no member is what the request asks for"
	}
	var has []string
	for i := range view.Len() {
		if value := of(view.Candidate(i)); !slices.Contains(has, value) {
			has = append(has, value)
		}
	}
	slices.Sort(has)
	more := ""
	if len(has) > maxChoices {
		has, more = has[:maxChoices], fmt.Sprintf(" and %d more", len(has)-maxChoices)
	}
	for i := range has {
		if has[i] == "" {
			has[i] = "none"
			continue
		}
		has[i] = fmt.Sprintf("%q", validate.Clip(has[i]))
	}
	return fmt.Sprintf("%s: %q is not valid, its members have %s%s", field, validate.Clip(asked), strings.Join(has, ", "), more)
}
