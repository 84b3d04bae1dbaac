// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

type listener struct{ heard []uint64 }

func (l *listener) Connected(bool)                  {}
func (l *listener) Receive(f *federationv1.Foreign) { l.heard = append(l.heard, f.GetNumber()) }

// I4: no later message repeats what a lost one contained, so a gap must not be ignored.
func TestI4_MessagesAboutOthersComeOnceAndWithoutGaps(t *testing.T) {
	for name, tc := range map[string]struct {
		numbers []uint64
		heard   int
		gap     bool
	}{
		"in order":              {[]uint64{1, 2, 3}, 3, false},
		"repeated":              {[]uint64{1, 2, 2, 1, 3}, 3, false},
		"missing":               {[]uint64{1, 3}, 1, true},
		"the first is missing":  {[]uint64{2}, 0, true},
		"swapped":               {[]uint64{2, 1}, 0, true},
		"a hub that counts not": {[]uint64{0, 0}, 2, false},
	} {
		l := &listener{}
		u := &uplink{agent: &Agent{opts: Options{Foreign: l}}}
		var err error
		for _, n := range tc.numbers {
			if err = u.foreign(&federationv1.Foreign{Number: n}); err != nil {
				break
			}
		}
		if len(l.heard) != tc.heard || errors.Is(err, errForeignGap) != tc.gap {
			t.Errorf("%s: heard %v, %v", name, l.heard, err)
		}
	}
}
