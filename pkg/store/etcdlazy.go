// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// lazies groups transactions that have no waiting caller. Each group is one transaction of etcd.
type lazies struct {
	store    *Etcd
	requests chan *request
	quit     chan struct{}
	done     chan struct{}
	once     sync.Once
}

func startLazies(e *Etcd) *lazies {
	l := &lazies{store: e, requests: make(chan *request, maxOps), quit: make(chan struct{}), done: make(chan struct{})}
	go l.run()
	return l
}

func (l *lazies) stop() {
	l.once.Do(func() { close(l.quit) })
	<-l.done
}

func (l *lazies) commit(ctx context.Context, txn Txn) (uint64, error) {
	txn.Puts = slices.Clone(txn.Puts)
	for i := range txn.Puts {
		txn.Puts[i].Value = bytes.Clone(txn.Puts[i].Value) // the caller may return before the write
	}
	r := &request{txn: txn}
	return r.submit(ctx, l.requests, l.quit, l.done)
}

// run writes one group at a time. A transaction that does not fit starts the next group.
func (l *lazies) run() {
	defer close(l.done)
	var g group
	var pause <-chan time.Time
	flush := func() {
		l.write(g)
		g, pause = group{}, nil
	}
	take := func(r *request) {
		if !g.add(r) {
			flush()
			g.add(r)
		}
		if pause == nil {
			pause = time.After(LazyPause)
		}
	}
	for {
		select {
		case r := <-l.requests:
			take(r)
		case <-pause:
			flush()
		case <-l.quit:
			for {
				select {
				case r := <-l.requests:
					take(r)
					continue
				default:
				}
				flush()
				return
			}
		}
	}
}

// group is a set of transactions in which no key occurs twice.
type group struct {
	requests []*request
	txn      Txn
	keys     map[string]bool
}

// add adds a transaction to the group, and reports false if it does not fit.
func (g *group) add(r *request) bool {
	keys := map[string]bool{}
	for _, c := range r.txn.If {
		keys[c.Key] = true
	}
	for _, p := range r.txn.Puts {
		keys[p.Key] = true
	}
	for _, key := range r.txn.Deletes {
		keys[key] = true
	}
	for key := range keys {
		if g.keys[key] {
			return false
		}
	}
	next := Txn{
		If: slices.Concat(g.txn.If, r.txn.If), Puts: slices.Concat(g.txn.Puts, r.txn.Puts), Deletes: slices.Concat(g.txn.Deletes, r.txn.Deletes),
	}
	if len(g.requests) > 0 && fits(next) != nil {
		return false
	}
	if g.keys == nil {
		g.keys = map[string]bool{}
	}
	for key := range keys {
		g.keys[key] = true
	}
	g.requests, g.txn = append(g.requests, r), next
	return true
}

// write commits a group. If one of its transactions has a conflict, nothing is written, and write commits each transaction separately.
func (l *lazies) write(g group) {
	if len(g.requests) == 0 {
		return
	}
	ctx := context.Background()
	if len(g.requests) > 1 {
		start := time.Now()
		revision, err := l.store.transact(ctx, g.txn)
		if !errors.Is(err, ErrConflict) {
			results := slices.Repeat([]result{{revision, err}}, len(g.requests))
			l.store.metrics.committed(time.Since(start), results)
			for _, r := range g.requests {
				r.done <- results[0]
			}
			return
		}
	}
	for _, r := range g.requests {
		revision, err := l.store.commit(ctx, r.txn)
		r.done <- result{revision, err}
	}
}
