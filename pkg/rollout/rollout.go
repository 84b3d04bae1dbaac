// SPDX-License-Identifier: Apache-2.0

// Package rollout defines how much of a pool may be missing while its idle Pods are replaced. In goes a number, or a percentage
// of replicas, as text; out comes a number of Pods. The hub validates it, a refresh stores it, and the pool follows it.
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

// Parse reads a limit, as 3 or 20%; Default if the text is empty.
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

// Of returns the limit for a number of replicas. A limit above none is at least one Pod, so that small pools roll over as well.
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
