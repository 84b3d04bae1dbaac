// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"slices"
	"testing"
	"time"

	"navix.sh/atoll/pkg/hubstate"
)

func TestRenewalAt(t *testing.T) {
	issued := time.Unix(1e9, 0)
	const life = 100 * time.Hour
	for name, tt := range map[string]struct {
		backdate time.Duration
		chance   float64
		want     time.Duration // after it was issued
	}{
		"a fifth before its end":      {0, 0, 80 * time.Hour},
		"up to a quarter":             {0, 0.5, 77*time.Hour + 30*time.Minute},
		"a life without its backdate": {10 * time.Hour, 0, 82 * time.Hour},
		"shorter than the backdate":   {200 * time.Hour, 0, 80 * time.Hour},
		"as long as the backdate":     {life, 0, 80 * time.Hour},
	} {
		if got := RenewalAt(issued, issued.Add(life), tt.backdate, tt.chance).Sub(issued); got != tt.want {
			t.Errorf("%s: after %s, want %s", name, got, tt.want)
		}
	}
}

func TestSweep(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := &hubstate.Authority{
		Invitations: []hubstate.Invitation{
			{ID: "over", Expires: now.Add(-time.Second)}, {ID: "just over", Expires: now}, {ID: "first", Expires: now.Add(1)},
			{ID: "second", Expires: now.Add(time.Hour)},
		},
		Waiting: []hubstate.Joiner{
			{ClusterID: "a", Invitation: "over"}, {ClusterID: "b", Invitation: "first"}, {ClusterID: "c", Invitation: "second"},
		},
	}
	sweep(s, now)
	if len(s.Invitations) != 2 || s.Invitations[0].ID != "first" || s.Invitations[1].ID != "second" {
		t.Errorf("left are the invitations %+v, want first and second", s.Invitations)
	}
	if len(s.Waiting) != 2 || s.Waiting[0].ClusterID != "b" || s.Waiting[1].ClusterID != "c" {
		t.Errorf("waiting are %+v, want b and c", s.Waiting)
	}
}

func TestAdvance(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, tt := range []struct {
		to                        hubstate.RotationStep
		cas, invitations, waiting int
	}{{hubstate.Distributing, 2, 3, 1}, {hubstate.Renewing, 2, 1, 0}, {hubstate.Dropping, 2, 3, 1}, {hubstate.Stable, 1, 3, 1}} {
		s := &hubstate.Authority{
			Generation: 7, CAs: []hubstate.CA{{Cert: []byte("old")}, {Cert: []byte("new")}}, Skip: true,
			Invitations: []hubstate.Invitation{{ID: "unused"}, {ID: "waits", UsedAt: now}, {ID: "used", UsedAt: now, Granted: true}},
			Waiting:     []hubstate.Joiner{{Invitation: "waits"}},
		}
		advance(s, tt.to, now)
		if s.Step != tt.to || s.Generation != 8 || !s.Since.Equal(now) || s.Skip {
			t.Errorf("%q: step %q, generation %d, since %s, skip %t", tt.to, s.Step, s.Generation, s.Since, s.Skip)
		}
		if len(s.CAs) != tt.cas || string(s.CAs[len(s.CAs)-1].Cert) != "new" {
			t.Errorf("%q: %d CAs, want %d, the new one among them", tt.to, len(s.CAs), tt.cas)
		}
		if len(s.Invitations) != tt.invitations || s.Invitations[len(s.Invitations)-1].ID != "used" || len(s.Waiting) != tt.waiting {
			t.Errorf("%q: invitations %+v, waiting %+v", tt.to, s.Invitations, s.Waiting)
		}
	}
}

func TestWhoSignsAndWhoIsTrusted(t *testing.T) {
	for step, want := range map[hubstate.RotationStep]struct {
		cas, signer int
		trusted     []int
	}{
		hubstate.Stable: {1, 0, []int{0}}, hubstate.Distributing: {2, 0, []int{0, 1}}, hubstate.Renewing: {2, 1, []int{0, 1}},
		hubstate.Dropping: {2, 1, []int{1}},
	} {
		s := &hubstate.Authority{Step: step, CAs: make([]hubstate.CA, want.cas)}
		if got := signerOf(s); got != want.signer {
			t.Errorf("%q: CA %d signs, want %d", step, got, want.signer)
		}
		if got := trusted(s); !slices.Equal(got, want.trusted) {
			t.Errorf("%q: trusted are %v, want %v", step, got, want.trusted)
		}
	}
}
