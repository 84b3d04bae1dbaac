// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// MaxTimeout is the longest idle, lifetime or first-activity timeout that a request may name.
const MaxTimeout = 8760 * time.Hour

// TimeoutFaults are what is wrong with the timeouts of a claim.
func TimeoutFaults(r *sandboxv1.CreateSandboxRequest) []problem.Field {
	faults := timeoutFaults(nil, "idleTimeout", r.GetIdleTimeout())
	faults = timeoutFaults(faults, "maxLifetime", r.GetMaxLifetime())
	d := r.GetFirstActivityTimeout()
	switch {
	case r.GetClaimKey() == "":
		return timeoutFaults(faults, "firstActivityTimeout", d)
	case d.GetSeconds() != 0 || d.GetNanos() != 0:
		return append(faults, problem.Field{
			Field: "firstActivityTimeout", Value: DurationValue(d), Valid: "0 or nothing, with a claimKey: its sandbox can be asked for again",
		})
	}
	return faults
}

// UpdateFaults are what is wrong with the timeouts that a change of a live sandbox names.
func UpdateFaults(r *sandboxv1.UpdateSandboxRequest) []problem.Field {
	faults := timeoutFaults(nil, "idleTimeout", r.GetIdleTimeout())
	faults = timeoutFaults(faults, "maxLifetime", r.GetMaxLifetime())
	if r.GetIdleTimeout() == nil && r.GetMaxLifetime() == nil {
		faults = append(faults, problem.Field{Field: "idleTimeout", Valid: "a duration, here or as maxLifetime: a timeout to change"})
	}
	return faults
}

func timeoutFaults(faults []problem.Field, field string, d *durationpb.Duration) []problem.Field {
	if d == nil || d.IsValid() && d.AsDuration() >= 0 && d.AsDuration() <= MaxTimeout {
		return faults
	}
	return append(faults, problem.Field{Field: field, Value: DurationValue(d), Valid: `a duration such as "90s", from 0 (none) to 8760h`})
}

// DurationValue is a duration as an error quotes it, in or out of its type's range.
func DurationValue(d *durationpb.Duration) string {
	if d == nil || !d.IsValid() {
		return d.String()
	}
	return d.AsDuration().String()
}
