// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
)

// Revision is the highest that this process has seen.
func (e *Etcd) Revision() (uint64, error) { return e.highest.Load(), nil }

// Position is how far a store has come.
type Position struct {
	Revision uint64
	// Commits counts the store's own commits, of builds that count them. Unlike a revision it does not rise where etcd is restored
	// from a snapshot with --bump-revision, nor by what others write to it.
	Commits uint64
}

// Committed is how far the store had come with this process's last commit; zero if it made none.
func (e *Etcd) Committed() Position {
	e.progress.Lock()
	defer e.progress.Unlock()
	return e.written
}

// Reached is how far the store has come now, whichever process wrote it.
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

// commitsKey is the entry that each commit writes: etcd counts its versions.
func (e *Etcd) commitsKey() string { return e.options.Prefix + "/commits/" + e.options.Kind }

// committed notes a commit of this process.
func (e *Etcd) committed(at Position) {
	e.progress.Lock()
	defer e.progress.Unlock()
	e.written.Revision, e.written.Commits = max(e.written.Revision, at.Revision), max(e.written.Commits, at.Commits)
}

// SetBack is closed when etcd turns out to have been set back. The process has to start anew; because what it knows is of no use.
func (e *Etcd) SetBack() <-chan struct{} { return e.setBack }

// follows checks the revision of a response that is as late as etcd's quorum, against the highest one seen before the call.
func (e *Etcd) follows(before uint64, revision int64) error {
	if uint64(revision) >= before {
		e.saw(revision)
		return nil
	}
	return e.wasSetBack("revision", uint64(revision), before)
}

// countsOn checks the number of commits of such a response, which shows an etcd whose revisions rose as it was set back.
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
