// SPDX-License-Identifier: Apache-2.0

package builds

import (
	"fmt"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/e2b"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

func TestANameIsOfATeam(t *testing.T) {
	s := New(store.NewMemory())
	for _, one := range []e2b.Template{
		{Name: "a", Team: "red", Image: "one"},
		{Name: "a", Team: "", Image: "two"},
		{Name: "a-b", Team: "red", Image: "three"},
		{Name: "a", Team: "red", Image: "four"},
	} {
		must.Succeed(t, s.Put(t.Context(), one))
	}
	got, err := s.Find(t.Context(), "a")
	if err != nil || len(got) != 2 || got[0].Image != "two" || got[1].Image != "four" {
		t.Errorf("templates named a are %v, %v", got, err)
	}
	must.Succeed(t, s.Delete(t.Context(), "a", "red"))
	if got, err := s.Find(t.Context(), "a"); err != nil || len(got) != 1 || got[0].Image != "two" {
		t.Errorf("without the one of red they are %v, %v", got, err)
	}
}

func TestTemplatesAreBounded(t *testing.T) {
	s := New(store.NewMemory())
	s.max = 10
	for i := range s.max {
		must.Succeed(t, s.Put(t.Context(), e2b.Template{Name: fmt.Sprintf("t%d", i)}))
	}
	if err := s.Put(t.Context(), e2b.Template{Name: "more"}); problem.FromError(err).Reason != problem.Quota {
		t.Errorf("one more: %v, want QUOTA", err)
	}
	if err := s.Put(t.Context(), e2b.Template{Name: "t7", Image: "other"}); err != nil {
		t.Errorf("a change of one: %v", err)
	}
	s.perTeam = 3
	for i := range s.perTeam {
		must.Succeed(t, s.Delete(t.Context(), fmt.Sprintf("t%d", i), ""))
	}
	now := time.Now()
	for i := range s.perTeam {
		one := e2b.Template{Name: fmt.Sprintf("r%d", i), Team: "red", State: e2b.Building, Begun: now}
		must.Succeed(t, s.Put(t.Context(), one))
	}
	if err := s.Room(t.Context(), e2b.Template{Name: "more", Team: "red", Begun: now}); problem.FromError(err).Reason != problem.Quota {
		t.Errorf("one more of the team: %v, want QUOTA", err)
	}
}

func TestBuildsAtOnceAreBounded(t *testing.T) {
	s, now := New(store.NewMemory()), time.Now()
	building := func(name string, begun time.Time) e2b.Template {
		return e2b.Template{Name: name, Team: "red", Build: name, State: e2b.Building, Begun: begun}
	}
	for i := range MaxBuilding {
		must.Succeed(t, s.Put(t.Context(), building(fmt.Sprint(i), now)))
	}
	if err := s.Room(t.Context(), building("more", now)); problem.FromError(err).Reason != problem.RateLimited {
		t.Errorf("one more: %v, want RATE_LIMITED", err)
	}
	if err := s.Room(t.Context(), e2b.Template{Name: "more", Team: "blue", Begun: now}); err != nil {
		t.Errorf("of another team: %v", err)
	}
	if err := s.Room(t.Context(), building("more", now.Add(e2b.BuildTimeout))); err != nil {
		t.Errorf("after those that no client asked about: %v", err)
	}
	settled := building("1", now)
	settled.State, settled.Reason = e2b.Failed, "why"
	must.Succeed(t, s.Settle(t.Context(), settled))
	if err := s.Put(t.Context(), building("more", now)); err != nil {
		t.Errorf("after one has settled: %v", err)
	}
	if got, err := s.Find(t.Context(), "1"); err != nil || len(got) != 1 || got[0].State != e2b.Failed || got[0].Reason != "why" {
		t.Errorf("it is %v, %v", got, err)
	}
	other := building("more", now)
	other.Build, other.State = "earlier", ""
	must.Succeed(t, s.Settle(t.Context(), other))
	if got, err := s.Find(t.Context(), "more"); err != nil || got[0].State != e2b.Building {
		t.Errorf("an earlier build settled a later one: %v, %v", got, err)
	}
	if err := s.Settle(t.Context(), building("none", now)); err != nil {
		t.Errorf("one that was deleted: %v", err)
	}
	if got, err := s.Find(t.Context(), "none"); err != nil || len(got) != 0 {
		t.Errorf("it came back: %v, %v", got, err)
	}
}
