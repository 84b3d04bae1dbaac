// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"navix.sh/atoll/e2e/must"
)

// TestAGroupIsWhatWaits, up to its bound.
func TestAGroupIsWhatWaits(t *testing.T) {
	c := &committer{requests: make(chan *request, 2*maxGroup)}
	for waiting, want := range map[int]int{0: 1, 3: 4, maxGroup - 1: maxGroup, maxGroup + 5: maxGroup} {
		for range waiting {
			c.requests <- &request{}
		}
		if got := len(c.gather([]*request{{}})); got != want || len(c.requests) != waiting+1-want {
			t.Errorf("with %d that wait there are %d in a group, want %d", waiting, got, want)
		}
		for len(c.requests) > 0 {
			<-c.requests
		}
	}
}

// A change and a conflict do not affect the other requests of their group. A change that fails fails the whole group.
func TestAGroupHasChangesAndConflicts(t *testing.T) {
	s, err := OpenBolt(filepath.Join(t.TempDir(), "s.db"), "test")
	must.Succeed(t, err)
	defer func() { must.Succeed(t, s.Close()) }()
	put := func(key string, conditions ...Condition) *request {
		return &request{txn: Txn{If: conditions, Puts: []Put{{Key: key}}}, done: make(chan result, 1)}
	}
	change := func(err error) *request {
		return &request{change: func(*bbolt.Bucket) error { return err }, done: make(chan result, 1)}
	}
	cannot := errors.New("cannot")
	for name, tc := range map[string]struct {
		group []*request
		want  []error
	}{
		"works": {
			[]*request{put("a"), change(nil), put("b"), put("c", Condition{Key: "a", Revision: 99}), put("d")},
			[]error{nil, nil, nil, ErrConflict, nil},
		},
		"fails": {[]*request{put("e"), change(cannot), put("f")}, []error{cannot, cannot, cannot}},
	} {
		s.committer.write(tc.group)
		for i, r := range tc.group {
			got := <-r.done
			if !errors.Is(got.err, tc.want[i]) {
				t.Errorf("%s: request %d has %v, want %v", name, i, got.err, tc.want[i])
			}
			if r.change != nil {
				continue
			}
			if e, ok, err := s.Get(t.Context(), r.txn.Puts[0].Key); err != nil || ok != (tc.want[i] == nil) || e.Revision != got.revision {
				t.Errorf("%s: request %d at revision %d left %+v %t %v", name, i, got.revision, e, ok, err)
			}
		}
	}
}
