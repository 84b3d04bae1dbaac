// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/wallclock"
)

// ErrCompacted ends a Watch whose revisions are no longer kept. Read everything, and watch from there.
var ErrCompacted = errors.New("store: the revision to watch from is no longer kept")

// Shared is a Store that several processes write.
type Shared interface {
	Store
	// Watch calls changed with the changes to entries whose key has the prefix, in order of their revisions, from the first after
	// a revision on. The changes of one transaction come in one call. It returns when ctx ends, with ctx's error, with ErrCompacted, or
	// where a change cannot be read, as without its key; other failures are retried.
	Watch(ctx context.Context, prefix string, after uint64, changed func([]Event)) error
	// Revision is one up to which this process knows everything that it has read. To know a state and all its changes, take the
	// revision, read the state, and watch from the revision: see Follow.
	Revision() (uint64, error)
	// Lead calls lead while this process, of all that name the same office, holds it, again and again until ctx ends. The context
	// of lead ends when the office may be lost. Two processes may hold it for a moment: lead must be safe then.
	Lead(ctx context.Context, office string, lead func(ctx context.Context)) error
}

// Follow calls load and then changed with what changes after it, in the order of Watch, until ctx ends. A change that load has seen may
// come again. Where the store has lost changes it calls load again. A failure of load ends it.
func Follow(ctx context.Context, s Shared, prefix string, load func(ctx context.Context) error, changed func([]Event)) error {
	for {
		after, err := s.Revision()
		if err == nil {
			err = load(ctx)
		}
		if err != nil {
			return err
		}
		if err := s.Watch(ctx, prefix, after, changed); !errors.Is(err, ErrCompacted) {
			return err
		}
	}
}

// followAgain is the pause of KeepFollowing after a failure.
const followAgain = time.Second

// KeepFollowing is Follow, again after each failure, which it reports to failed. It returns when ctx ends or the store is closed.
func KeepFollowing(ctx context.Context, c clock.Clock, s Shared, prefix string, load func(ctx context.Context) error,
	changed func([]Event), failed func(error),
) {
	for {
		err := Follow(ctx, s, prefix, load, changed)
		if ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return
		}
		failed(err)
		if wallclock.Sleep(ctx, c, followAgain) != nil {
			return
		}
	}
}

// Event is a change of one entry.
type Event struct {
	Entry   // of a deletion: the key, and the revision of the transaction that deleted it
	Deleted bool
}
