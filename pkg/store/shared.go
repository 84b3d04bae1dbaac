// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/wallclock"
)

// ErrCompacted ends a Watch whose revisions are no longer available. The caller must read everything again and watch from there.
var ErrCompacted = errors.New("store: the revision to watch from is no longer kept")

// Shared is a Store that several processes use.
type Shared interface {
	Store
	// Watch calls changed with the changes to entries whose key has the prefix, in the order of their revisions, starting after the given
	// revision. The changes of one transaction are passed in one call. Watch returns ctx's error when ctx ends, ErrCompacted, or an error if a
	// change cannot be read, for example without its key. It retries after other failures.
	Watch(ctx context.Context, prefix string, after uint64, changed func([]Event)) error
	// Revision returns a revision that is not later than anything this process reads from now on. To see a state and all changes to it, get
	// the revision, read the state, and watch from the revision; see Follow.
	Revision() (uint64, error)
	// Lead calls lead each time this process is elected, until ctx ends. An election has one leader at a time. The context of lead ends when
	// leadership may be lost. Two processes may lead for a moment, so lead must be safe if they do.
	Lead(ctx context.Context, election string, lead func(ctx context.Context)) error
}

// Follow calls load, and then changed with later changes, in the order of Watch, until ctx ends. changed may get a change that load has
// seen. If changes were compacted, Follow calls load again. It returns if load fails.
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

// FollowOptions configure KeepFollowing. All fields are required, except that an empty prefix means all keys.
type FollowOptions struct {
	Prefix  string
	Load    func(ctx context.Context) error // as in Follow
	Changed func([]Event)                   // as in Follow
	Failed  func(error)                     // gets each failure
	Clock   clock.Clock
}

// KeepFollowing runs Follow again after each failure. It returns when ctx ends or the store is closed.
func KeepFollowing(ctx context.Context, s Shared, o FollowOptions) {
	for {
		err := Follow(ctx, s, o.Prefix, o.Load, o.Changed)
		if ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return
		}
		o.Failed(err)
		if wallclock.Sleep(ctx, o.Clock, followAgain) != nil {
			return
		}
	}
}

// Event is a change of one entry.
type Event struct {
	Entry   // for a deletion: the key, and the revision of the transaction that deleted it
	Deleted bool
}
