// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/worker/workertest"
)

// verb is the kind of a call.
type verb string

const (
	create  verb = "create"
	release verb = "release"
	cancel  verb = "cancel"
)

// said is the kind of a response.
type said string

const (
	live       said = "live"     // a live sandbox
	over       said = "over"     // it has ended
	conflicted said = "conflict" // the key stands for other parameters
	done       said = "done"     // of release and cancel
	missing    said = "missing"  // of cancel: there is no such key
	unheard    said = "unheard"  // no response, or one without consequences
)

// question is one call.
type question struct {
	verb    verb
	key     string
	variant int    // of the parameters, from 1
	id      string // of release
}

// answer is a call's response.
type answer struct {
	said said
	id   string
	why  string // for messages
}

// operation is a call with its times.
type operation struct {
	question
	answer
	client       int
	began, ended int64
	at           time.Time
}

// held is a sandbox that a caller was given.
type held struct {
	id, cluster, pod, key string
	at                    time.Time
}

// history is all calls and their responses.
type history struct {
	mu         sync.Mutex
	tick       int64
	operations []*operation
	given      map[string]held      // by sandbox id
	givenUp    map[string]struct{}  // ids that a caller asked to end, with or without a response
	cancelled  map[string]struct{}  // keys, likewise
	lastUse    map[string]time.Time // of the sandboxes that are left to their idle timeout
	twice      []string
}

func newHistory() *history {
	return &history{given: map[string]held{}, givenUp: map[string]struct{}{}, cancelled: map[string]struct{}{},
		lastUse: map[string]time.Time{}}
}

// begin records a call.
func (h *history) begin(client int, q question) *operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tick++
	o := &operation{question: q, client: client, began: h.tick, ended: math.MaxInt64, answer: answer{said: unheard}, at: time.Now()}
	h.operations = append(h.operations, o)
	switch q.verb {
	case release:
		h.givenUp[q.id] = struct{}{}
	case cancel:
		h.cancelled[q.key] = struct{}{}
	}
	return o
}

// finish records the response. A call without a response may still take effect at any time.
func (h *history) finish(o *operation, a answer) operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.answer = a
	if a.said != unheard {
		h.tick++
		o.ended = h.tick
	}
	return *o
}

// give records which claim got which sandbox: no two claims get the same one (I1).
func (h *history) give(key string, s *sandboxv1.Sandbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := held{id: s.GetId(), cluster: s.GetClusterId(), pod: s.GetPodUid(), key: key, at: time.Now()}
	before, again := h.given[g.id]
	if again && (key == "" || before.key != key) {
		h.twice = append(h.twice, fmt.Sprintf("I1: sandbox %s was given to claims %q and %q", g.id, before.key, key))
	}
	if !again {
		h.given[g.id] = g
	}
}

// anyGiven draws a sandbox that no caller has asked to end.
func (h *history) anyGiven(draw func(n int) int) (held, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var free []held
	for id, g := range h.given {
		if _, up := h.givenUp[id]; !up {
			free = append(free, g)
		}
	}
	if len(free) == 0 {
		return held{}, false
	}
	slices.SortFunc(free, func(a, b held) int { return a.at.Compare(b.at) })
	return free[draw(len(free))], true
}

func (h *history) count(all *counts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.operations {
		if o.verb == create {
			all.claims++
		}
	}
	all.given += len(h.given)
	all.ended += len(h.givenUp)
}

// alive counts the sandboxes that no caller has asked to end.
func (h *history) alive() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for id := range h.given {
		if _, up := h.givenUp[id]; !up {
			n++
		}
	}
	return n
}

func (h *history) all() []*operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.operations)
}

// register is a claim key from its callers' view.
type register struct {
	variant int    // its parameters; 0: none yet
	id      string // of its sandbox, if known
	ended   bool
}

// model is how a key may behave. A sandbox may end without a request; once a caller was told so, no response may differ.
var model = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, o := range all {
			key := o.Input.(question).key
			byKey[key] = append(byKey[key], o)
		}
		var out [][]porcupine.Operation
		for _, one := range byKey {
			out = append(out, one)
		}
		return out
	},
	Init: func() any { return register{} },
	Step: func(state, input, output any) (bool, any) {
		return state.(register).step(input.(question), output.(answer))
	},
	Equal: func(a, b any) bool { return a == b },
}

func (r register) step(q question, a answer) (bool, any) {
	same := r.id == "" || a.id == "" || r.id == a.id
	next := r
	if q.verb == create && next.variant == 0 {
		next.variant = q.variant
	}
	if a.id != "" {
		next.id = a.id
	}
	switch a.said {
	case live:
		return !r.ended && same && next.variant == q.variant, next
	case over:
		next.ended = true
		return same && next.variant == q.variant, next
	case conflicted:
		return r.variant != 0 && r.variant != q.variant, r
	case done:
		next.ended = true
		return same, next
	case missing:
		return r.id == "" && !r.ended, r
	default:
		return true, next
	}
}

// linearizable checks the calls about keys, and describes every key whose calls have no valid order.
func (h *history) linearizable() []string {
	contested := map[string]bool{}
	for _, o := range h.all() {
		contested[o.key] = contested[o.key] || o.said == conflicted
	}
	byKey := map[string][]porcupine.Operation{}
	for _, o := range h.all() {
		if o.key == "" || o.said == unheard && !contested[o.key] {
			continue // a call without a response explains only a conflict
		}
		byKey[o.key] = append(byKey[o.key], porcupine.Operation{
			ClientId: o.client, Input: o.question, Output: o.answer, Call: o.began, Return: o.ended,
		})
	}
	var wrong []string
	for key, operations := range byKey {
		if !porcupine.CheckOperations(model, operations) {
			wrong = append(wrong, "I2: no order explains what callers were told of key "+key+": "+h.tell(key))
		}
	}
	return wrong
}

// tell lists all calls about a key.
func (h *history) tell(key string) string {
	var lines []string
	for _, o := range h.all() {
		if o.key == key {
			lines = append(lines, fmt.Sprintf("%8.3fs [%d-%d] client %d: %s/%d %s → %s %s %s",
				float64(o.at.UnixMilli()%1e7)/1e3, o.began, o.ended, o.client, o.verb, o.variant, o.question.id, o.said, o.answer.id, o.why))
		}
	}
	return "\n    " + strings.Join(lines, "\n    ")
}

// keyOf returns the key that has a hash; "" if no caller used it.
func (h *history) keyOf(hash string) string {
	for _, o := range h.all() {
		if o.key != "" && workertest.KeyHash("", "default", o.key) == hash {
			return o.key
		}
	}
	return ""
}
