// SPDX-License-Identifier: Apache-2.0

// Package listing decides which sandboxes a list includes, in which order, with which fields, and where its pages begin. It is pure.
//
// In: requests of ListSandboxes, and sandboxes. Out: a Query, or faults that name field, value and what is valid. Hub, worker and watches
// use the same Query, so that a filter has the same meaning everywhere.
//
//   - Between hub and worker a page token is a Position in plain text. Callers get a sealed token that is bound to the filters and the
//     order, so that using it with others is INVALID.
//   - Lists are ordered by fields of a sandbox that never change; because a sandbox that moved between two pages would be missing or listed
//     twice.
//   - Everything that a caller sends is bounded before it is parsed (I14).
package listing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/labels"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
)

// Page sizes of a list of sandboxes.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

var stopReasons = []string{"Completed", "Canceled", "Released", "Failed"}

// Query is a request with parsed filters.
type Query struct {
	request  *sandboxv1.ListSandboxesRequest
	labels   labels.Selector // nil: all
	metadata []requirement
	order    order
	mask     mask // nil: all fields
	after    Position
}

// Parse returns the Query of a request, or everything that is wrong with it. Its page token must be a Position; see Unseal.
func Parse(r *sandboxv1.ListSandboxesRequest) (*Query, validate.Faults) {
	q := &Query{request: r}
	var f validate.Faults
	q.labels = parseLabels(&f, r.GetLabelSelector())
	q.metadata = parseMetadata(&f, r.GetMetadataSelector())
	q.order = parseOrder(&f, r.GetOrderBy(), WantsEnded(r))
	q.mask = parseMask(&f, r.GetReadMask().GetPaths())
	var ok bool
	q.after, ok = q.order.parse(r.GetPageToken())
	f.Check(ok, "pageToken", validate.Clip(r.GetPageToken()), validToken)
	f = append(f, faults(r)...)
	slices.SortStableFunc(f, func(a, b problem.Field) int { return strings.Compare(a.Field, b.Field) })
	return q, f
}

// Size returns the maximum number of sandboxes in a page.
func (q *Query) Size() int {
	if q.request.GetPageSize() <= 0 {
		return DefaultPage
	}
	return min(int(q.request.GetPageSize()), MaxPage)
}

// WantsEnded reports whether a list includes ended sandboxes.
func WantsEnded(r *sandboxv1.ListSandboxesRequest) bool {
	return r.GetPhase() == sandboxv1.Phase_ENDED || r.GetStopReason() != "" || r.GetEndedAfter() != nil || r.GetEndedBefore() != nil
}

// faults returns the errors in the page size and the filters of ended sandboxes.
func faults(r *sandboxv1.ListSandboxesRequest) (f validate.Faults) {
	f.Check(r.GetPageSize() >= 0 && r.GetPageSize() <= MaxPage, "pageSize", fmt.Sprint(r.GetPageSize()), "0 to 1000")
	f.Check(!WantsEnded(r) || r.GetPhase() == sandboxv1.Phase_PHASE_UNSPECIFIED || r.GetPhase() == sandboxv1.Phase_ENDED,
		"phase", r.GetPhase().String(), "ENDED or nothing, with endedAfter, endedBefore or stopReason")
	f.Check(r.GetStopReason() == "" || slices.Contains(stopReasons, r.GetStopReason()),
		"stopReason", validate.Clip(r.GetStopReason()), strings.Join(stopReasons, ", "))
	for field, t := range map[string]*timestamppb.Timestamp{"endedAfter": r.GetEndedAfter(), "endedBefore": r.GetEndedBefore()} {
		f.Check(t == nil || t.IsValid(), field, t.String(), "a time such as 2026-03-01T12:00:00Z")
	}
	if len(f) == 0 && r.GetEndedAfter() != nil && r.GetEndedBefore() != nil {
		after, before := r.GetEndedAfter().AsTime(), r.GetEndedBefore().AsTime()
		f.Check(after.Before(before), "endedBefore", before.Format(time.RFC3339Nano), "a time after endedAfter")
	}
	return f
}

// Includes reports whether a list includes a sandbox, regardless of its page.
func (q *Query) Includes(s *sandboxv1.Sandbox) bool {
	return q.Concerns(s) && q.inPhase(s) && q.Selects(s)
}

// Concerns reports whether a sandbox meets the filters on fields that never change.
func (q *Query) Concerns(s *sandboxv1.Sandbox) bool {
	r := q.request
	is := func(want, got string) bool { return want == "" || want == got }
	return is(r.GetClusterId(), s.GetClusterId()) && is(r.GetNamespace(), s.GetNamespace()) && is(r.GetEnv(), s.GetEnv()) &&
		is(r.GetPool(), s.GetPool()) && is(r.GetTeam(), s.GetTeam()) && is(r.GetUser(), s.GetUser())
}

func (q *Query) inPhase(s *sandboxv1.Sandbox) bool {
	r := q.request
	if WantsEnded(r) {
		return s.GetPhase() == sandboxv1.Phase_ENDED && (r.GetStopReason() == "" || r.GetStopReason() == s.GetStopReason()) &&
			endedWithin(r, s.GetTerminatedAt())
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
