// SPDX-License-Identifier: Apache-2.0

package builds

import (
	"fmt"
	"testing"

	"navix.sh/atoll/pkg/e2b"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

func TestANameIsOfATeam(t *testing.T) {
	s := New(store.NewMemory())
	put := func(t *testing.T, one e2b.Template) {
		t.Helper()
		if err := s.Put(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	put(t, e2b.Template{Name: "a", Team: "red", Image: "one"})
	put(t, e2b.Template{Name: "a", Team: "", Image: "two"})
	put(t, e2b.Template{Name: "a-b", Team: "red", Image: "three"})
	put(t, e2b.Template{Name: "a", Team: "red", Image: "four"})
	got, err := s.Find(t.Context(), "a")
	if err != nil || len(got) != 2 || got[0].Image != "two" || got[1].Image != "four" {
		t.Errorf("templates named a are %v, %v", got, err)
	}
	if err := s.Delete(t.Context(), "a", "red"); err != nil {
		t.Error(err)
	}
	if got, err := s.Find(t.Context(), "a"); err != nil || len(got) != 1 || got[0].Image != "two" {
		t.Errorf("without the one of red they are %v, %v", got, err)
	}
}

func TestTemplatesAreBounded(t *testing.T) {
	s := New(store.NewMemory())
	s.max = 10
	for i := range s.max {
		if err := s.Put(t.Context(), e2b.Template{Name: fmt.Sprintf("t%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Put(t.Context(), e2b.Template{Name: "more"}); problem.FromError(err).Reason != problem.Quota {
		t.Errorf("one more: %v, want QUOTA", err)
	}
	if err := s.Put(t.Context(), e2b.Template{Name: "t7", Image: "other"}); err != nil {
		t.Errorf("a change of one: %v", err)
	}
}
