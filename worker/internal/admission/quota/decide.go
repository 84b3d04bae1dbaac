// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/worker/internal/admission"
)

// ReasonUnreadable means that the team's entry is invalid.
const ReasonUnreadable admission.Reason = "QuotaUnreadable"

// retryAfter is when to ask for room again. It is unknown when there will be room.
const retryAfter = 30 * time.Second

// Amount is the need of one Pod, or the holdings of several.
type Amount struct {
	Replicas int64
	CPU      int64 // in thousandths
	Memory   int64 // in bytes
}

// Plus returns the sum. It saturates at the largest number instead of overflowing.
func (a Amount) Plus(b Amount) Amount {
	return Amount{plus(a.Replicas, b.Replicas), plus(a.CPU, b.CPU), plus(a.Memory, b.Memory)}
}

// Times returns the amount of n Pods.
func (a Amount) Times(n int64) Amount {
	return Amount{times(a.Replicas, n), times(a.CPU, n), times(a.Memory, n)}
}

// plus adds two terms that are not negative.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func times(a, n int64) int64 {
	if a > 0 && n > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * n
}

// Demand is the demand of one pool, with the holdings of the team's other pools.
type Demand struct {
	Team     string
	Entry    Entry
	Others   Amount
	Pod      Amount // Replicas is 1
	From, To int32
}

// Decide admits as many replicas as fit. The pool keeps the replicas that it already has.
func Decide(d Demand) admission.Verdict {
	if d.To <= d.From {
		return admission.Admit(d.To)
	}
	if err := d.Entry.Err; err != nil {
		return admission.Refuse(d.From, ReasonUnreadable, fmt.Sprintf("the quota of team %s cannot be read: %s", d.Team, clip.Line(err.Error())),
			retryAfter)
	}
	fit, short := int64(d.To), ""
	for _, dim := range d.dimensions() {
		if dim.limit == nil || dim.pod == 0 {
			continue
		}
		if n := max(0, *dim.limit-dim.others) / dim.pod; n < fit {
			fit, short = n, dim.describe()
		}
	}
	if fit >= int64(d.To) {
		return admission.Admit(d.To)
	}
	admitted := max(int32(fit), d.From)
	return admission.Verdict{
		Replicas: admitted, Reason: admission.QuotaExceeded, RetryAfter: retryAfter,
		Message: fmt.Sprintf("the quota of team %s has room for %d of %d replicas: %s", d.Team, admitted, d.To, short),
	}
}

// Exceeds reports whether the held amount exceeds the limit, and which dimension does.
func Exceeds(limit Limit, held Amount) (string, bool) {
	d := Demand{Entry: Entry{Limit: limit}, Others: held, Pod: Amount{1, 1, 1}}
	for _, dim := range d.dimensions() {
		if dim.limit != nil && dim.others > *dim.limit {
			return fmt.Sprintf("%s of %s %s would be held", dim.show(dim.others), dim.show(*dim.limit), dim.name), true
		}
	}
	return "", false
}

// dimension is one of the limited quantities.
type dimension struct {
	name        string
	limit       *int64
	others, pod int64
	show        func(int64) string
}

func (d *Demand) dimensions() []dimension {
	return []dimension{
		{"replicas", d.Entry.Replicas, d.Others.Replicas, d.Pod.Replicas, func(n int64) string { return fmt.Sprint(n) }},
		{"cpu", d.Entry.CPU, d.Others.CPU, d.Pod.CPU, func(n int64) string { return resource.NewMilliQuantity(n, resource.DecimalSI).String() }},
		{"memory", d.Entry.Memory, d.Others.Memory, d.Pod.Memory,
			func(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }},
	}
}

func (d *dimension) describe() string {
	text := fmt.Sprintf("its other pools hold %s of %s %s", d.show(d.others), d.show(*d.limit), d.name)
	if d.name != "replicas" {
		text += fmt.Sprintf(", and a Pod needs %s", d.show(d.pod))
	}
	return text
}
