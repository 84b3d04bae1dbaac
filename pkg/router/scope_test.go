// SPDX-License-Identifier: Apache-2.0

package router

import (
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/pkg/segment"
)

// I15: a cluster serves an Env only if its namespace, the claim's team and the Env itself are all in its scope.
func TestI15AScopeIsAllOfItsParts(t *testing.T) {
	shop := segment.Key{Namespace: "shop", Name: "py"}
	one := func(name string) map[string]struct{} { return map[string]struct{}{name: {}} }
	for name, c := range map[string]struct {
		scope *Scope
		want  bool
	}{
		"no scope":               {nil, true},
		"an empty scope":         {&Scope{}, true},
		"its namespace":          {&Scope{Namespaces: one("shop")}, true},
		"another namespace":      {&Scope{Namespaces: one("search")}, false},
		"its team":               {&Scope{Teams: one("red")}, true},
		"another team":           {&Scope{Teams: one("blue")}, false},
		"its name":               {&Scope{Envs: map[segment.Key]struct{}{shop: {}}}, true},
		"another name":           {&Scope{Envs: map[segment.Key]struct{}{{Namespace: "shop", Name: "go"}: {}}}, false},
		"all, but another team":  {&Scope{Namespaces: one("shop"), Teams: one("blue"), Envs: map[segment.Key]struct{}{shop: {}}}, false},
		"all, but another Env":   {&Scope{Namespaces: one("shop"), Teams: one("red"), Envs: map[segment.Key]struct{}{{}: {}}}, false},
		"all, but another space": {&Scope{Namespaces: one("search"), Teams: one("red"), Envs: map[segment.Key]struct{}{shop: {}}}, false},
		"all":                    {&Scope{Namespaces: one("shop"), Teams: one("red"), Envs: map[segment.Key]struct{}{shop: {}}}, true},
	} {
		if got := c.scope.Serves("red", shop); got != c.want {
			t.Errorf("with %s: served %t", name, got)
		}
		cluster := NewCluster("east")
		cluster.SetScope(c.scope)
		if given := c.want || strings.HasSuffix(name, "another team"); cluster.Given(shop) != given {
			t.Errorf("with %s: given %t", name, !given)
		}
		seg := segment.New(shop).With(segment.Member{Name: "p", State: segment.Active, Idle: 1, ReadyIdle: 1})
		got := Pick(&Request{Team: "red"}, NewView([]Candidate{{Cluster: cluster, Segment: seg}}), 0)
		if got.OK() != c.want || !c.want && got.Reason != NotServed {
			t.Errorf("with %s: picked %+v", name, got)
		}
	}
}

func TestReasonsThatASegmentsFaultTells(t *testing.T) {
	for _, reason := range hope {
		want := reason == MemberMissing || reason == MemberInconsistent
		if got := reason.Unserving(); got != want {
			t.Errorf("%s: %t", reason, got)
		}
	}
	if !NoMembers.Unserving() {
		t.Error("an Env without members is served")
	}
}

// An explanation has so many candidates, those that are asked for besides, and says how many it leaves out.
func TestAnExplanationLeavesOut(t *testing.T) {
	v := scene{lines: "a/p ready=3\nb/p ready=3\nc/p ready=3\n"}.view(t)
	e := Explain(&Request{}, v, 0)
	last := e.Candidates[2].Cluster.ID
	for _, c := range []struct {
		most int
		keep func(*Explained) bool
		want int
		says string
	}{
		{3, nil, 3, "3 idle Pods free"},
		{1, nil, 1, "3 idle Pods free; 2 more candidates are left out"},
		{1, func(e *Explained) bool { return e.Cluster.ID == last }, 2, "3 idle Pods free; 1 more candidates are left out"},
	} {
		d := e.Proto(time.Unix(0, 0), c.most, c.keep)
		if len(d.GetCandidates()) != c.want || d.GetMessage() != c.says {
			t.Errorf("at most %d: %d candidates, %q", c.most, len(d.GetCandidates()), d.GetMessage())
		}
	}
}

// An explanation of a past decision has the candidate that was picked at the front, if it is eligible still.
func TestChosen(t *testing.T) {
	v := scene{lines: "a/p ready=3\nb/p ready=3\nc/p missing\n"}.view(t)
	for chosen, want := range map[string]string{"a": "a", "b": "b", "c": "a", "d": "a"} {
		e := Explain(&Request{}, v, 0)
		e.Chosen(chosen, "p")
		if first := e.Candidates[0]; first.Cluster.ID != want || first.Rank != 1 || len(e.Candidates) != 3 {
			t.Errorf("%s chosen: the first of %d is %s, rank %d", chosen, len(e.Candidates), first.Cluster.ID, first.Rank)
		}
	}
}

// An explanation leaves out claims in flight whose Pods the member's counts deduct already, as Pick does.
func TestAnExplanationCountsClaimsInFlightOnce(t *testing.T) {
	v := scene{lines: "a/p ready=3 inflight=3 claiming=1\n"}.view(t)
	if got := Explain(&Request{}, v, 0).Candidates[0]; got.InFlight != 2 || got.Free != 1 {
		t.Errorf("%d in flight, %d free", got.InFlight, got.Free)
	}
}
