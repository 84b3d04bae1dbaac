// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"testing"
)

// A group has no more than fits into one transaction of etcd, and no key twice.
func TestWhatIsAGroupForEtcd(t *testing.T) {
	put := func(key string) *request { return &request{txn: Txn{Puts: []Put{{Key: key}}}} }
	var g group
	for i := range maxOps {
		if !g.add(put(fmt.Sprint(i))) {
			t.Fatalf("the request after %d was refused", i)
		}
	}
	if g.add(put("more")) || len(g.requests) != maxOps || fits(g.txn) != nil {
		t.Errorf("%d requests are in a group: %v", len(g.requests), fits(g.txn))
	}
	var twice group
	if !twice.add(put("k")) || twice.add(put("k")) {
		t.Error("a key is in a group twice")
	}
}

// Every lazy request that waits when the store is closed gets a result.
func TestEtcdCloseEndsLazyRequests(t *testing.T) {
	l := &lazies{
		store:    &Etcd{closed: true, metrics: newMetrics("test")},
		requests: make(chan *request, maxOps), quit: make(chan struct{}), done: make(chan struct{}),
	}
	var waiting []*request
	for i := range 100 { // run may take some of them before it sees that quit is closed
		r := &request{txn: Txn{Puts: []Put{{Key: fmt.Sprint(i)}}}, done: make(chan result, 1)}
		waiting = append(waiting, r)
		l.requests <- r
	}
	close(l.quit)
	l.run()
	for i, r := range waiting {
		if len(r.done) != 1 {
			t.Fatalf("request %d has no result", i)
		}
		if got := <-r.done; !errors.Is(got.err, ErrClosed) {
			t.Errorf("request %d: %v", i, got.err)
		}
	}
}
