// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/wallclock"
)

type staleKey struct{}

// AllowStale returns a context whose reads may return the state of a single member while etcd has no quorum. That state may miss the latest
// writes.
func AllowStale(ctx context.Context) context.Context { return context.WithValue(ctx, staleKey{}, true) }

// MayBeStale reports whether a context comes from AllowStale.
func MayBeStale(ctx context.Context) bool { return ctx.Value(staleKey{}) != nil }

// read reads from etcd, at the latest revision unless the context allows a stale one.
func (e *Etcd) read(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	leave, err := e.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	mayBeStale, first := MayBeStale(ctx), ctx
	if mayBeStale && e.failure.Load() != nil { // do not wait for a quorum that was just missing
		return e.readStale(ctx, key, options)
	}
	if mayBeStale {
		var cancel context.CancelFunc
		first, cancel = halfOf(ctx)
		defer cancel()
	}
	before, began := e.highest.Load(), time.Now()
	response, err := e.attempts(first, key, options)
	if err = e.responded(ctx, began, err); mayBeStale && errors.Is(err, ErrUnavailable) {
		return e.readStale(ctx, key, options)
	}
	if err != nil {
		return nil, err
	}
	return response, e.follows(before, response.Header.Revision)
}

// halfOf returns a context with half of the remaining time, so that a second attempt has the other half.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	left, bounded := wallclock.Left(ctx)
	if !bounded {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, left/2)
}

// readStale reads from any member. Its result says nothing about the quorum.
func (e *Etcd) readStale(ctx context.Context, key string, options []clientv3.OpOption) (*clientv3.GetResponse, error) {
	response, err := e.attempts(ctx, key, append(slices.Clone(options), clientv3.WithSerializable()))
	if err != nil && ctx.Err() == nil {
		err = explain(err)
	}
	return response, err
}

// attempts retries with another member if one does not respond in time.
func (e *Etcd) attempts(ctx context.Context, key string, options []clientv3.OpOption) (*clientv3.GetResponse, error) {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for {
		response, err := e.attempt(bounded, key, options)
		if err == nil || !errors.Is(err, context.DeadlineExceeded) || bounded.Err() != nil {
			return response, err
		}
	}
}

func (e *Etcd) attempt(ctx context.Context, key string, options []clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return e.client.Get(ctx, key, options...)
}

func (e *Etcd) entry(ctx context.Context, kv *mvccpb.KeyValue) (Entry, error) {
	key := strings.TrimPrefix(string(kv.Key), e.base)
	value, err := e.seal.open(ctx, key, kv.Value)
	return Entry{Key: key, Value: value, Revision: uint64(kv.ModRevision)}, err
}

// Get implements Store.
func (e *Etcd) Get(ctx context.Context, key string) (Entry, bool, error) {
	response, err := e.read(ctx, e.base+key)
	if err != nil || len(response.Kvs) == 0 {
		return Entry{}, false, err
	}
	entry, err := e.entry(ctx, response.Kvs[0])
	return entry, err == nil, err
}

// Range implements Store. All entries are of one revision.
func (e *Etcd) Range(ctx context.Context, prefix, after string, limit int) (entries []Entry, err error) {
	limit = entriesOf(limit)
	_, err = e.pages(ctx, prefix, after, limit, 0, func(kv *mvccpb.KeyValue) error {
		entry, err := e.entry(ctx, kv)
		entries = append(entries, entry)
		return err
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// pages calls see with up to limit entries. All are from one revision: at, or the latest if at is 0. pages returns that revision.
func (e *Etcd) pages(ctx context.Context, prefix, after string, limit int, at int64, see func(kv *mvccpb.KeyValue) error) (int64, error) {
	from, end := e.base+prefix, clientv3.GetPrefixRangeEnd(e.base+prefix)
	if after != "" && after >= prefix {
		from = e.base + after + "\x00"
	}
	if from >= end {
		return at, ctx.Err()
	}
	for limit > 0 {
		response, err := e.read(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(int64(min(limit, pageSize))), clientv3.WithRev(at))
		if err != nil {
			return at, err
		}
		if at == 0 {
			at = response.Header.Revision
		}
		for _, kv := range response.Kvs {
			if err := see(kv); err != nil {
				return at, err
			}
			from = string(kv.Key) + "\x00"
		}
		if limit -= len(response.Kvs); !response.More {
			break
		}
	}
	return at, nil
}

// Commit implements Store.
func (e *Etcd) Commit(ctx context.Context, txn Txn) (uint64, error) {
	for _, p := range txn.Puts {
		if len(p.Key) == 0 || len(p.Key) > maxKey {
			return 0, ErrKey
		}
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	txn, err := e.seal.txn(ctx, txn)
	if err != nil {
		return 0, err
	}
	if err := fits(txn); err != nil {
		return 0, err
	}
	if txn.Lazy {
		return e.lazies.commit(ctx, txn)
	}
	return e.commit(ctx, txn)
}

// fits checks etcd's limits before etcd does, because etcd counts what it rejects as an error of its own.
func fits(txn Txn) error {
	if ops := max(len(txn.If), len(txn.Puts)+len(txn.Deletes)); ops > maxOps {
		return fmt.Errorf("%w: it has %d conditions or changes, want at most %d", ErrTooLarge, ops, maxOps)
	}
	if size := sizeOf(txn); size > maxBytes {
		return fmt.Errorf("%w: it has %d bytes, want at most %d", ErrTooLarge, size, maxBytes)
	}
	return nil
}

const opOverhead = 160 // bytes of a request per operation: the prefix and the framing

func sizeOf(txn Txn) (size int) {
	for _, c := range txn.If {
		size += len(c.Key) + opOverhead
	}
	for _, p := range txn.Puts {
		size += len(p.Key) + len(p.Value) + opOverhead
	}
	for _, key := range txn.Deletes {
		size += len(key) + opOverhead
	}
	return size
}

// commit executes a transaction and counts it in the metrics.
func (e *Etcd) commit(ctx context.Context, txn Txn) (uint64, error) {
	start := time.Now()
	revision, err := e.transact(ctx, txn)
	e.metrics.committed(time.Since(start), []result{{revision, err}})
	return revision, err
}

func (e *Etcd) transact(ctx context.Context, txn Txn) (uint64, error) {
	leave, err := e.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	var conditions []clientv3.Cmp
	for _, c := range txn.If {
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(e.base+c.Key), "=", int64(c.Revision)))
	}
	var changes []clientv3.Op
	for _, p := range txn.Puts {
		changes = append(changes, clientv3.OpPut(e.base+p.Key, string(p.Value)))
	}
	for _, key := range txn.Deletes {
		changes = append(changes, clientv3.OpDelete(e.base+key))
	}
	changes = append(changes, clientv3.OpPut(e.commitsKey(), "", clientv3.WithPrevKV())) // must be last; see commitsOf
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	before, counted, began := e.highest.Load(), e.counted.Load(), time.Now()
	response, err := e.client.Txn(bounded).If(conditions...).Then(changes...).Commit()
	if err = e.responded(ctx, began, err); err != nil {
		return 0, err
	}
	if err := e.follows(before, response.Header.Revision); err != nil {
		return 0, err
	}
	if !response.Succeeded {
		return 0, ErrConflict
	}
	at := Position{Revision: uint64(response.Header.Revision), Commits: commitsOf(response)}
	if err := e.countsOn(counted+1, at); err != nil {
		return 0, err
	}
	e.committed(at)
	return at.Revision, nil
}

// commitsOf returns the number of a commit, which is one more than that of the commit before it.
func commitsOf(response *clientv3.TxnResponse) uint64 {
	before := response.Responses[len(response.Responses)-1].GetResponsePut().PrevKv
	if before == nil {
		return 1
	}
	return uint64(before.Version) + 1
}

// rewatchPause is the pause between two attempts to watch.
const rewatchPause = 300 * time.Millisecond

// Watch implements Shared.
func (e *Etcd) Watch(ctx context.Context, prefix string, after uint64, changed func([]Event)) error {
	for {
		err := e.follow(ctx, prefix, &after, changed)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrCompacted), errors.Is(err, ErrClosed), errors.Is(err, ErrDamaged), errors.Is(err, ErrSetBack),
			errors.Is(err, envelope.ErrNoKey), errors.Is(err, envelope.ErrWrongKey): // no later event can be passed
			return err
		}
		if err := e.wait(ctx, rewatchPause); err != nil {
			return err
		}
	}
}

// wait sleeps for the duration. It fails if ctx ends or the store closes first.
func (e *Etcd) wait(ctx context.Context, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-e.ending:
		return ErrClosed
	case <-time.After(pause):
		return nil
	}
}

// follow watches until the stream fails. It also stops if the member loses its leader, because that member would silently fall behind.
func (e *Etcd) follow(ctx context.Context, prefix string, after *uint64, changed func([]Event)) error {
	leave, err := e.enter()
	if err != nil {
		return err
	}
	leave()
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for r := range e.client.Watch(ctx, e.base+prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(*after)+1), clientv3.WithCreatedNotify()) {
		switch {
		case r.CompactRevision != 0 || errors.Is(r.Err(), rpctypes.ErrCompacted):
			return ErrCompacted
		case r.Err() != nil:
			return explain(r.Err())
		case r.Created && r.Header.Revision > 0 && uint64(r.Header.Revision) < *after:
			// Either etcd was set back, or this member lags. If etcd was set back, new events would have revisions that count as known.
			switch at, err := e.latest(ctx); {
			case err != nil:
				return err // not decided: without a quorum, this member may only lag
			case at < *after:
				return ErrCompacted
			}
		}
		e.saw(r.Header.Revision)
		if err := e.pass(ctx, r.Events, after, changed); err != nil {
			return err
		}
	}
	return ErrUnavailable
}

// latest returns etcd's current revision, as of its quorum.
func (e *Etcd) latest(ctx context.Context) (uint64, error) {
	response, err := e.read(ctx, e.layoutKey())
	if err != nil {
		return 0, err
	}
	return uint64(response.Header.Revision), nil
}

// pass delivers the events of each transaction to a watch.
func (e *Etcd) pass(ctx context.Context, all []*clientv3.Event, after *uint64, changed func([]Event)) error {
	for len(all) > 0 {
		revision := all[0].Kv.ModRevision
		var events []Event
		for ; len(all) > 0 && all[0].Kv.ModRevision == revision; all = all[1:] {
			entry, err := e.entry(ctx, all[0].Kv)
			if err != nil {
				return err
			}
			events = append(events, Event{Entry: entry, Deleted: all[0].Type == mvccpb.DELETE})
		}
		changed(events)
		*after = uint64(revision)
	}
	return nil
}
