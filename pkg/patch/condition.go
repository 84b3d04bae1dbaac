// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/v1alpha1"
)

// Reason is the reason for a condition's status. The constants are in api/v1alpha1, next to the condition types.
type Reason = v1alpha1.ConditionReason

// Condition is a reconciler's conclusion. SetCondition adds the derived fields.
type Condition struct {
	Type    string
	Status  metav1.ConditionStatus
	Reason  Reason
	Message string
}

// True is a condition that holds.
func True(conditionType string, reason Reason, message string) Condition {
	return Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// False is a condition that does not hold.
func False(conditionType string, reason Reason, message string) Condition {
	return Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// SetCondition sets c in conditions, as observed at the given generation, and reports whether anything changed.
// lastTransitionTime changes only with the status, to the clock's time.
func SetCondition(conditions *[]metav1.Condition, clk clock.PassiveClock, generation int64, c Condition) bool {
	return meta.SetStatusCondition(conditions, metav1.Condition{
		Type:               c.Type,
		Status:             c.Status,
		Reason:             string(c.Reason),
		Message:            c.Message,
		ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(clk.Now()),
	})
}
