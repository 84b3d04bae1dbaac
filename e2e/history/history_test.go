// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

func live(id string) *sandboxv1.Sandbox {
	return &sandboxv1.Sandbox{Id: id, PodUid: "pod-" + id, Phase: sandboxv1.Phase_RUNNING}
}

func givenUp(id string, after time.Duration) *sandboxv1.Sandbox {
	begun := time.Now().Truncate(time.Second)
	return &sandboxv1.Sandbox{
		Id: id, Phase: sandboxv1.Phase_ENDED, StopReason: "Failed", FailureReason: startupTimeout, StartupTimeout: durationpb.New(time.Minute),
		ClaimedAt: timestamppb.New(begun), TerminatedAt: timestamppb.New(begun.Add(after)),
	}
}

func ended(id string) *sandboxv1.Sandbox {
	return &sandboxv1.Sandbox{Id: id, Phase: sandboxv1.Phase_ENDED}
}

func TestHistories(t *testing.T) {
	for name, tc := range map[string]struct {
		calls func(h *History)
		fits  bool
	}{
		"the same sandbox, then its record": {func(h *History) {
			h.Create("k")(live("a"))
			h.Create("k")(live("a"))
			h.End("k")(ended("a"))
			h.Create("k")(ended("a"))
		}, true},
		"given back, and its Pod is being reset": {func(h *History) {
			h.Create("k")(live("a"))
			h.End("k")(ended("a"))
			h.Create("k")(&sandboxv1.Sandbox{Id: "a", Phase: sandboxv1.Phase_STOPPING})
		}, true},
		"two sandboxes": {func(h *History) {
			h.Create("k")(live("a"))
			h.Create("k")(live("b"))
		}, false},
		"two keys": {func(h *History) {
			h.Create("k")(live("a"))
			h.Create("l")(live("b"))
		}, true},
		"live after its end": {func(h *History) {
			h.Create("k")(live("a"))
			h.End("k")(ended("a"))
			h.Create("k")(live("a"))
		}, false},
		"live while it is being ended": {func(h *History) {
			done := h.End("k")
			h.Create("k")(live("a"))
			done(ended("a"))
		}, true},
		"another sandbox after a cancel": {func(h *History) {
			h.End("k")(ended(""))
			h.Create("k")(live("a"))
		}, false},
		"cancelled before there was one": {func(h *History) {
			h.End("k")(ended(""))
			h.Create("k")(ended(""))
			h.Create("k")(ended("granted late and never answered"))
		}, true},
		"ended without a call": {func(h *History) {
			h.Create("k")(live("a"))
			h.Create("k")(ended("a"))
		}, false},
		"given up before it ran": {func(h *History) {
			h.Create("k")(givenUp("a", time.Minute))
		}, true},
		"given up too early": {func(h *History) {
			h.Create("k")(givenUp("a", 50*time.Second))
		}, false},
		"given up though it ran": {func(h *History) {
			h.Create("k")(live("a"))
			h.Create("k")(givenUp("a", time.Minute))
		}, false},
		"ended by a restored etcd": {func(h *History) {
			h.Create("k")(live("a"))
			h.Create("k")(ended("a"))
			h.MayEnd("a")
		}, true},
		"ended by a call of which nothing is known": {func(h *History) {
			h.Create("k")(live("a"))
			h.End("k")(nil)
			h.Create("k")(live("a"))
			h.Create("k")(ended("a"))
		}, true},
		"nothing came of it": {func(h *History) {
			h.Create("k")(nil)
			h.Create("k")(live("a"))
			h.End("k")(nil)
		}, true},
		"the record of another one": {func(h *History) {
			h.Create("k")(live("a"))
			h.End("k")(ended("b"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := New()
			tc.calls(h)
			if errs := h.Check(); (len(errs) == 0) != tc.fits {
				t.Errorf("found %v", errs)
			}
			h.Forget("k")
			if errs := h.Check(); (len(errs) == 0) != tc.fits {
				t.Errorf("after it was forgotten: %v", errs)
			}
			if kept := h.byKey["k"] != nil; kept == tc.fits {
				t.Errorf("a key whose answers fit (%t) was kept (%t)", tc.fits, kept)
			}
		})
	}
}

func TestHoldings(t *testing.T) {
	keyed := func(id string) *sandboxv1.Sandbox {
		s := live(id)
		s.ClaimKey = "k-" + id
		return s
	}
	b := NewHoldings()
	b.Answered(keyed("a"))
	b.Answered(keyed("a"))
	if wrong := b.Wrong(); len(wrong) > 0 || b.Counts() != (Counts{Answered: 1}) || len(b.Held()) != 1 {
		t.Errorf("one sandbox answered twice is %v, %v", wrong, b.Counts())
	}
	other := keyed("a")
	other.Id, other.ClaimKey = "b", "k-b"
	b.Answered(other)
	if len(b.Wrong()) != 1 || b.Counts().Doubled != 1 {
		t.Errorf("a Pod answered as two sandboxes is %v, %v", b.Wrong(), b.Counts())
	}
	b.Releasing(other)
	if len(b.Held()) != 1 {
		t.Error("releasing another sandbox struck the Pod out")
	}
	b.Releasing(keyed("a"))
	b.Answered(other)
	if len(b.Wrong()) != 1 || len(b.Held()) != 1 {
		t.Errorf("a Pod that was given back and answered again is %v", b.Wrong())
	}
	elsewhere := keyed("d")
	elsewhere.ClaimKey = "k-a"
	if err := b.Answered(elsewhere); !errors.Is(err, ErrHoldings) || len(b.Wrong()) != 2 {
		t.Errorf("a key that is answered with another sandbox is %v", err)
	}
	if err := b.Answered(&sandboxv1.Sandbox{Id: "e", Phase: sandboxv1.Phase_STARTING}); err == nil {
		t.Error("a sandbox without a Pod was entered")
	}
	b.Answered(live("c"))
	b.Answered(live("c"))
	if b.Counts().Doubled != 3 {
		t.Errorf("a sandbox that two claims without a key were answered is %v", b.Wrong())
	}
}
