// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// call is a caller's request.
type call struct {
	create bool // otherwise an end of the sandbox
	// free marks a sandbox that may have ended without a call: a restored etcd does not have it.
	free bool
}

// answer is the call's response. It is meaningless where the outcome is unknown.
type answer struct {
	ended bool
	id    string // of the sandbox; may be empty for one that has ended
	known bool
	// late marks a sandbox that ended because it did not start in time.
	late bool
	why  string // it ended, according to the record
}

// History records the calls about claim keys. It is safe for concurrent use.
type History struct {
	begin time.Time

	mu     sync.Mutex
	byKey  map[string][]porcupine.Operation
	client int
	free   map[string]bool
}

// New returns an empty history.
func New() *History {
	return &History{begin: time.Now(), byKey: map[string][]porcupine.Operation{}, free: map[string]bool{}}
}

func (h *History) now() int64 { return int64(time.Since(h.begin)) }

// Create begins a claim with a key. The returned function gets its outcome: a sandbox, live or ended, or nil if it was refused
// or is unknown.
func (h *History) Create(key string) (done func(*sandboxv1.Sandbox)) {
	begun := h.now()
	return func(s *sandboxv1.Sandbox) {
		if s == nil {
			return
		}
		h.add(key, call{create: true}, answerOf(s), begun, h.now())
	}
}

func answerOf(s *sandboxv1.Sandbox) answer {
	a := answer{ended: Over(s), id: s.GetId(), known: true}
	if a.ended {
		a.why = strings.TrimSpace(fmt.Sprintf("%s %s %s", s.GetStopReason(), s.GetFailureReason(), s.GetFailureMessage()))
		lived := s.GetTerminatedAt().AsTime().Sub(s.GetClaimedAt().AsTime())
		a.late = s.GetFailureReason() == startupTimeout && s.GetStartedAt() == nil && s.GetStartupTimeout() != nil &&
			lived > s.GetStartupTimeout().AsDuration()-time.Second // times are whole seconds
	}
	return a
}

// startupTimeout is the failure reason of a sandbox that did not start in time.
const startupTimeout = "StartupTimeout"

// Over reports whether a sandbox was given back: only its Pod's reset is left.
func Over(s *sandboxv1.Sandbox) bool {
	return s.GetPhase() == sandboxv1.Phase_STOPPING || s.GetPhase() == sandboxv1.Phase_ENDED
}

// End begins a call that cancels a key or releases its sandbox. The returned function gets the record in the response, or nil
// if the outcome is unknown.
func (h *History) End(key string) (done func(*sandboxv1.Sandbox)) {
	begun := h.now()
	return func(s *sandboxv1.Sandbox) {
		if s == nil {
			h.add(key, call{}, answer{}, begun, math.MaxInt64)
			return
		}
		h.add(key, call{}, answer{ended: true, id: s.GetId(), known: true}, begun, h.now())
	}
}

func (h *History) add(key string, c call, a answer, begun, ended int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.client++ // each call is a client of its own: a key may have many callers
	h.byKey[key] = append(h.byKey[key], porcupine.Operation{ClientId: h.client, Input: c, Call: begun, Output: a, Return: ended})
}

// MayEnd records that a sandbox may end, or may have ended, without a call.
func (h *History) MayEnd(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.free[id] = true
}

// Forget drops the calls of an unused key if they fit; because a long run's history would not fit into memory. Other calls are
// left to Check, which may know of more ends by then.
func (h *History) Forget(key string) {
	h.mu.Lock()
	operations := h.byKey[key]
	h.mu.Unlock()
	if h.check(key, operations) != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.byKey, key)
}

// Check returns an error for every key whose responses do not fit.
func (h *History) Check() []error {
	h.mu.Lock()
	byKey := maps.Clone(h.byKey)
	h.mu.Unlock()
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		if err := h.check(key, byKey[key]); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// checkPatience is far more than the calls of one key take.
const checkPatience = time.Minute

func (h *History) check(key string, operations []porcupine.Operation) error {
	operations = slices.Clone(operations)
	h.mu.Lock()
	for i := range operations {
		c := operations[i].Input.(call)
		c.free = h.free[operations[i].Output.(answer).id]
		operations[i].Input = c
	}
	h.mu.Unlock()
	result, _ := porcupine.CheckOperationsVerbose(model, operations, checkPatience)
	if result == porcupine.Ok {
		return nil
	}
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	lines := make([]string, 0, len(operations))
	for _, o := range operations {
		ended := "…"
		if o.Return != math.MaxInt64 {
			ended = time.Duration(o.Return).String()
		}
		lines = append(lines, fmt.Sprintf("  %s to %s: %s", time.Duration(o.Call), ended, model.DescribeOperation(o.Input, o.Output)))
	}
	return fmt.Errorf("I2: the answers for claim key %q fit into no order (%s):\n%s", key, result, strings.Join(lines, "\n"))
}

// register is the state of one key.
type register struct {
	answered string
	ended    bool
}

var model = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, input, output any) (bool, any) {
		return step(state.(register), input.(call), output.(answer))
	},
	DescribeOperation: func(input, output any) string { return describe(input.(call), output.(answer)) },
}

// step reports whether a response is possible in a state, and returns the next state.
func step(r register, c call, a answer) (bool, any) {
	same := a.id == "" || r.answered == "" || a.id == r.answered
	switch {
	case !c.create:
		r.ended = true
		return !a.known || same, r
	case !a.ended:
		legal := !r.ended && same
		r.answered = a.id
		return legal, r
	default:
		// A sandbox that no caller was given may have started too late; a running one cannot.
		legal := same && (r.ended || c.free || a.late && r.answered == "")
		r.ended = true
		return legal, r
	}
}

func describe(c call, a answer) string {
	what := "end"
	if c.create {
		what = "create"
	}
	switch {
	case !a.known:
		return what + " → ?"
	case a.ended:
		return strings.TrimSpace(what + " → record of " + a.id + " " + a.why)
	default:
		return what + " → sandbox " + a.id
	}
}
