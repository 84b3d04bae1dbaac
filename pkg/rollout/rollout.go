// SPDX-License-Identifier: Apache-2.0

// Package rollout defines how much of a pool may be unavailable while its idle Pods are replaced.
//
// In: a number, or a percentage of replicas, as text. Out: a number of Pods. The hub validates the text, a refresh stores it, and the pool
// applies it.
package rollout

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/problem"
)

// Default is the limit of an empty text.
var Default = Limit{intstr.FromString("20%")}

// Limit is a number of Pods, or a percentage of replicas.
type Limit struct {
	of intstr.IntOrString
}

// Parse parses a limit such as 3 or 20%. It returns Default if the text is empty.
func Parse(text string) (Limit, error) {
	if text == "" {
		return Default, nil
	}
	limit := Limit{intstr.Parse(text)}
	if n, err := limit.scaled(100); err != nil || n < 0 || limit.of.Type == intstr.String && n > 100 {
		return Default, problem.InvalidField("maxUnavailable", clip.Text(text, 64), "a number of Pods, or 0% to 100%")
	}
	return limit, nil
}

// Of returns the limit for a number of replicas. A limit above zero yields at least one Pod, so that small pools are replaced too.
func (l Limit) Of(replicas int32) int {
	n, err := l.scaled(int(replicas))
	if err != nil {
		return 0
	}
	return n
}

func (l Limit) scaled(replicas int) (int, error) {
	return intstr.GetScaledValueFromIntOrPercent(&l.of, replicas, true)
}
