// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/envelope"
)

const (
	// rereadEvery bounds how late a change of the key file is noticed. It is polled; because a mounted Secret changes by a swap
	// of links.
	rereadEvery = 5 * time.Second
	// resealPause leaves the disk to others between two batches.
	resealPause = 5 * time.Millisecond
)

// Rotation keeps files encrypted with the first key of a key file.
type Rotation struct {
	Keys  *envelope.KeyFile
	Files []*Bolt
	Clock clock.WithTicker
	Log   logr.Logger
}

// Stale is the number of entries that have yet to be encrypted anew, when last counted.
func (r *Rotation) Stale() (n int64) {
	for _, file := range r.Files {
		n += file.stale.Load()
	}
	return n
}

// Run takes up changes of the key file, and encrypts the entries of the files anew in the background, until ctx ends.
func (r *Rotation) Run(ctx context.Context) error {
	ticker := r.Clock.NewTicker(rereadEvery)
	defer ticker.Stop()
	done := false // every entry has the current key
	for {
		switch changed, err := r.Keys.Reread(); {
		case err != nil:
			r.Log.Error(err, "Encryption keys not taken up; those from before stay in use")
		case changed:
			r.Log.Info("Encryption keys taken up", "keys", r.Keys.Names(), "encrypts", r.Keys.Current())
			done = false
		}
		if !done {
			err := r.reseal(ctx)
			if done = err == nil; err != nil && ctx.Err() == nil {
				r.Log.Error(err, "Entries are still encrypted with another key; it must stay in the file")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// reseal encrypts all entries with the current key.
func (r *Rotation) reseal(ctx context.Context) error {
	for _, file := range r.Files {
		stale, err := file.Stale(ctx)
		if err != nil {
			return fmt.Errorf("looking at file %s: %w", file.kind, err)
		}
		file.stale.Store(int64(stale))
		for after, more := "", stale > 0; more; more = after != "" {
			last, changed, err := file.Reseal(ctx, after)
			if err != nil {
				return fmt.Errorf("file %s: %w", file.kind, err)
			}
			file.stale.Add(int64(-changed))
			after = last
			select {
			case <-r.Clock.After(resealPause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		file.stale.Store(0)
		r.Log.Info("Every entry is encrypted with the current key", "file", file.kind, "key", r.Keys.Current(), "changed", stale)
	}
	return nil
}
