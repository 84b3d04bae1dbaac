// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
)

// maxGroup is the maximum number of requests in a group. It bounds how long one transaction waits for the others.
const maxGroup = 1024

// committer is the only writer of a bbolt file. When it is idle it commits a transaction immediately, unless the transaction is lazy.
// Requests that arrive during a commit form the next group.
type committer struct {
	db       *bbolt.DB
	metrics  *metrics
	requests chan *request
	quit     chan struct{}
	done     chan struct{}
	once     sync.Once
	broken   atomic.Bool           // the file is damaged
	failure  atomic.Pointer[error] // error of the last group, nil if it was written
}

type request struct {
	txn Txn
	// change, if it is set, is applied instead of txn. If it fails, the whole group fails.
	change func(data *bbolt.Bucket) error
	done   chan result // buffered: the committer never waits for a caller that has gone
}

type result struct {
	revision uint64
	err      error
}

func startCommitter(db *bbolt.DB, m *metrics) *committer {
	c := &committer{
		db:       db,
		metrics:  m,
		requests: make(chan *request, maxGroup),
		quit:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	go c.run()
	return c
}

func (c *committer) commit(ctx context.Context, r *request) (uint64, error) {
	select {
	case <-c.quit:
		return 0, ErrClosed
	default:
	}
	return r.submit(ctx, c.requests, c.quit, c.done)
}

// submit sends a request to a run loop and waits for its result. The loop accepts requests until quit is closed, and closes done when it
// ends.
func (r *request) submit(ctx context.Context, requests chan<- *request, quit, done <-chan struct{}) (uint64, error) {
	r.done = make(chan result, 1)
	select {
	case requests <- r:
	case <-quit:
		return 0, ErrClosed
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case res := <-r.done:
		return res.revision, res.err
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-done:
		// The run loop may have sent the result just before it ended.
		select {
		case res := <-r.done:
			return res.revision, res.err
		default:
			return 0, ErrClosed
		}
	}
}

func (c *committer) stop() {
	c.once.Do(func() { close(c.quit) })
	<-c.done
}

func (c *committer) run() {
	defer close(c.done)
	group := make([]*request, 0, maxGroup)
	var pause <-chan time.Time // ends when the lazy requests in the group have waited long enough
	for {
		select {
		case r := <-c.requests:
			group = append(group, r)
			if r.txn.Lazy && len(group) < maxGroup {
				if pause == nil {
					pause = time.After(LazyPause)
				}
				continue
			}
		case <-pause:
		case <-c.quit:
			// Serve the requests that arrived before Close.
			for group = c.gather(group); len(group) > 0; group = c.gather(group[:0]) {
				c.write(group)
			}
			return
		}
		group = c.gather(group)
		c.write(group)
		clear(group)
		group, pause = group[:0], nil
	}
}

// gather adds the requests that already wait to the group. It does not block.
func (c *committer) gather(group []*request) []*request {
	for len(group) < maxGroup {
		select {
		case r := <-c.requests:
			group = append(group, r)
		default:
			return group
		}
	}
	return group
}

// write commits a group, counts it, and then sends the result to every caller, so that a caller with a result finds it in the metrics.
func (c *committer) write(group []*request) {
	results := make([]result, len(group))
	start := time.Now()
	err := c.update(group, results)
	c.failure.Store(nil)
	if err != nil {
		c.failure.Store(&err)
	}
	if err != nil {
		// The whole group was rolled back, including the writes that its conflicts depend on.
		for i := range results {
			results[i] = result{err: err}
		}
	}
	c.metrics.committed(time.Since(start), results)
	for i, r := range group {
		r.done <- results[i]
	}
}

// update commits a group in one bbolt transaction. Conditions see the writes of earlier transactions in the group. A conflict fails only
// its own transaction. A full disk fails the group, but not later groups. Damage is permanent, because bbolt's memory cannot be trusted
// after it.
func (c *committer) update(group []*request, results []result) (err error) {
	if c.broken.Load() {
		return ErrDamaged
	}
	defer func() {
		if errors.Is(err, ErrDamaged) {
			c.broken.Store(true)
		}
	}()
	defer guard(&err)()
	return c.db.Update(func(tx *bbolt.Tx) error {
		data := tx.Bucket(dataBucket)
		for i, r := range group {
			if r.change != nil {
				if err := r.change(data); err != nil {
					return err
				}
				continue
			}
			if !holds(data, r.txn.If) {
				results[i].err = ErrConflict
				continue
			}
			revision, err := apply(data, r.txn)
			if err != nil {
				return err
			}
			results[i].revision = revision
		}
		return nil
	})
}

func holds(data *bbolt.Bucket, conditions []Condition) bool {
	for _, cond := range conditions {
		var revision uint64
		if v := data.Get([]byte(cond.Key)); v != nil {
			revision = binary.BigEndian.Uint64(v)
		}
		if revision != cond.Revision {
			return false
		}
	}
	return true
}

func apply(data *bbolt.Bucket, txn Txn) (uint64, error) {
	revision, err := data.NextSequence()
	if err != nil {
		return 0, err
	}
	for _, p := range txn.Puts {
		value := append(binary.BigEndian.AppendUint64(make([]byte, 0, revisionLen+len(p.Value)), revision), p.Value...)
		if err := data.Put([]byte(p.Key), value); err != nil {
			return 0, err
		}
	}
	for _, key := range txn.Deletes {
		if err := data.Delete([]byte(key)); err != nil {
			return 0, err
		}
	}
	return revision, nil
}
