// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// MaxTimeout is the longest idle, lifetime or first-activity timeout of a request.
const MaxTimeout = 8760 * time.Hour

// Timeouts returns the faults of a claim's timeouts.
func Timeouts(r *sandboxv1.CreateSandboxRequest) Faults {
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

// Update returns the faults of a change to a live sandbox.
func Update(r *sandboxv1.UpdateSandboxRequest) Faults {
	var f Faults
	f.SandboxID(r.GetId())
	f = timeoutFaults(f, "idleTimeout", r.GetIdleTimeout())
	f = timeoutFaults(f, "maxLifetime", r.GetMaxLifetime())
	if r.GetIdleTimeout() == nil && r.GetMaxLifetime() == nil {
		f.Add("idleTimeout", "", "a duration, here or as maxLifetime: a timeout to change")
	}
	return f
}

func timeoutFaults(faults []problem.Field, field string, d *durationpb.Duration) []problem.Field {
	if d == nil || d.IsValid() && d.AsDuration() >= 0 && d.AsDuration() <= MaxTimeout {
		return faults
	}
	return append(faults, problem.Field{Field: field, Value: DurationValue(d), Valid: `a duration such as "90s", from 0 (none) to 8760h`})
}

// DurationValue formats a duration for an error, even if it is out of range.
func DurationValue(d *durationpb.Duration) string {
	if d == nil || !d.IsValid() {
		return d.String()
	}
	return d.AsDuration().String()
}
