// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

func TestRedirectAsksEachStreamOnce(t *testing.T) {
	h := newHub(t, handler{})
	workers := map[string]*worker{"east": h.attach("east", "py"), "west": h.attach("west", "py")}
	if diff := cmp.Diff([]string{"east", "west"}, h.server.Attached()); diff != "" {
		t.Error(diff)
	}
	first := h.server.Redirect(1, "it has more than its share")
	if len(first) != 1 {
		t.Fatalf("%v were asked, want one", first)
	}
	rest := h.server.Redirect(5, "it stops")
	if len(rest) != 1 || rest[0] == first[0] {
		t.Fatalf("%v were asked after %v", rest, first)
	}
	if again := h.server.Redirect(5, "it stops"); len(again) != 0 {
		t.Errorf("%v were asked twice", again)
	}
	for id, want := range map[string]string{first[0]: "it has more than its share", rest[0]: "it stops"} {
		got := workers[id].next("redirect", func(f *federationv1.HubFrame) bool { return f.GetRedirect() != nil })
		if got.GetRedirect().GetReason() != want {
			t.Errorf("%s was told %q, want %q", id, got.GetRedirect().GetReason(), want)
		}
	}
}

func TestExcess(t *testing.T) {
	for _, c := range []struct {
		mine   int
		others []int
		want   int
	}{
		{3, nil, 0},
		{0, []int{0, 0}, 0},
		{1, []int{1, 1}, 0},
		{2, []int{1, 0}, 0}, // one more than the share is left alone
		{3, []int{0, 0}, 1},
		{1000, []int{0, 0}, 16},
		{366, []int{317, 317}, 0}, // a tenth over
		{400, []int{300, 300}, 16},
		{10, []int{400, 400}, 0},
	} {
		if got := excess(c.mine, c.others); got != c.want {
			t.Errorf("of %d beside %v go %d, want %d", c.mine, c.others, got, c.want)
		}
	}
}
