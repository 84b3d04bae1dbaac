// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
)

// Revision returns the highest revision that this process has seen.
func (e *Etcd) Revision() (uint64, error) { return e.highest.Load(), nil }

// Position is a point in the history of a store.
type Position struct {
	Revision uint64
	// Commits counts the commits to this store by builds that count them. Unlike the revision, it rises neither when etcd is restored from a
	// snapshot with --bump-revision, nor with writes of others to etcd.
	Commits uint64
}

// Committed returns the position after this process's last commit, or zero if it made none.
func (e *Etcd) Committed() Position {
	e.progress.Lock()
	defer e.progress.Unlock()
	return e.written
}

// Reached returns the current position of the store, whichever process wrote last.
func (e *Etcd) Reached(ctx context.Context) (Position, error) {
	before := e.counted.Load()
	response, err := e.read(ctx, e.commitsKey())
	if err != nil {
		return Position{}, err
	}
	at := Position{Revision: uint64(response.Header.Revision)}
	if len(response.Kvs) > 0 {
		at.Commits = uint64(response.Kvs[0].Version)
	}
	return at, e.countsOn(before, at)
}

// commitsKey returns the key that every commit writes. Its version in etcd is the number of commits.
func (e *Etcd) commitsKey() string { return e.options.Prefix + "/commits/" + e.options.Kind }

// committed records the position after a commit of this process.
func (e *Etcd) committed(at Position) {
	e.progress.Lock()
	defer e.progress.Unlock()
	e.written.Revision, e.written.Commits = max(e.written.Revision, at.Revision), max(e.written.Commits, at.Commits)
}

// SetBack returns a channel that is closed when etcd is found to be set back. The process must then restart, because its state is invalid.
func (e *Etcd) SetBack() <-chan struct{} { return e.setBack }

// follows checks the revision of a linearizable response against the highest one seen before the call.
func (e *Etcd) follows(before uint64, revision int64) error {
	if uint64(revision) >= before {
		e.saw(revision)
		return nil
	}
	return e.wasSetBack("revision", uint64(revision), before)
}

// countsOn checks the number of commits in such a response. It detects an etcd that was set back and whose revisions were raised.
func (e *Etcd) countsOn(before uint64, at Position) error {
	if at.Commits < before {
		return e.wasSetBack("commit", at.Commits, before)
	}
	raise(&e.counted, int64(at.Commits))
	return nil
}

func (e *Etcd) wasSetBack(what string, at, before uint64) error {
	e.noted.Do(func() { close(e.setBack) })
	err := fmt.Errorf("%w: %s %d, after %d", ErrSetBack, what, at, before)
	e.failure.Store(&err)
	return err
}
