// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// Page sizes of a list of sandboxes.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

var stopReasons = []string{"Completed", "Canceled", "Released", "Failed"}

// PageSize is the most sandboxes that a list returns.
func PageSize(r *sandboxv1.ListSandboxesRequest) int {
	if r.GetPageSize() <= 0 {
		return DefaultPage
	}
	return min(int(r.GetPageSize()), MaxPage)
}

// WantsEnded reports whether a list includes ended sandboxes.
func WantsEnded(r *sandboxv1.ListSandboxesRequest) bool {
	return r.GetPhase() == sandboxv1.Phase_ENDED || r.GetStopReason() != "" || r.GetEndedAfter() != nil || r.GetEndedBefore() != nil
}

// ListFaults returns the errors in the page size and the filters of ended sandboxes.
func ListFaults(r *sandboxv1.ListSandboxesRequest) (faults []problem.Field) {
	fault := func(wrong bool, field, value, valid string) {
		if wrong {
			faults = append(faults, problem.Field{Field: field, Value: value, Valid: valid})
		}
	}
	fault(r.GetPageSize() < 0 || r.GetPageSize() > MaxPage, "pageSize", fmt.Sprint(r.GetPageSize()), "0 to 1000")
	fault(WantsEnded(r) && r.GetPhase() != sandboxv1.Phase_PHASE_UNSPECIFIED && r.GetPhase() != sandboxv1.Phase_ENDED,
		"phase", r.GetPhase().String(), "ENDED or nothing, with endedAfter, endedBefore or stopReason")
	fault(r.GetStopReason() != "" && !slices.Contains(stopReasons, r.GetStopReason()),
		"stopReason", r.GetStopReason(), strings.Join(stopReasons, ", "))
	for field, t := range map[string]*timestamppb.Timestamp{"endedAfter": r.GetEndedAfter(), "endedBefore": r.GetEndedBefore()} {
		fault(t != nil && !t.IsValid(), field, t.String(), "a time such as 2026-03-01T12:00:00Z")
	}
	if len(faults) == 0 && r.GetEndedAfter() != nil && r.GetEndedBefore() != nil {
		after, before := r.GetEndedAfter().AsTime(), r.GetEndedBefore().AsTime()
		fault(!after.Before(before), "endedBefore", before.Format(time.RFC3339Nano), "a time after endedAfter")
	}
	slices.SortFunc(faults, func(a, b problem.Field) int { return strings.Compare(a.Field, b.Field) })
	return faults
}

// Listed reports whether a list includes a sandbox, regardless of its page.
func Listed(r *sandboxv1.ListSandboxesRequest, s *sandboxv1.Sandbox) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	if !is(r.GetClusterId(), s.GetClusterId()) || !is(r.GetNamespace(), s.GetNamespace()) || !is(r.GetEnv(), s.GetEnv()) ||
		!is(r.GetPool(), s.GetPool()) || !is(r.GetTeam(), s.GetTeam()) || !is(r.GetUser(), s.GetUser()) ||
		!is(r.GetStopReason(), s.GetStopReason()) {
		return false
	}
	if WantsEnded(r) {
		return s.GetPhase() == sandboxv1.Phase_ENDED && endedWithin(r, s.GetTerminatedAt())
	}
	return r.GetPhase() == sandboxv1.Phase_PHASE_UNSPECIFIED || r.GetPhase() == s.GetPhase()
}

func endedWithin(r *sandboxv1.ListSandboxesRequest, at *timestamppb.Timestamp) bool {
	if after := r.GetEndedAfter(); after != nil && (at == nil || at.AsTime().Before(after.AsTime())) {
		return false
	}
	before := r.GetEndedBefore()
	return before == nil || at != nil && at.AsTime().Before(before.AsTime())
}
