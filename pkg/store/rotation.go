// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"sync/atomic"
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
	// recountEvery is the number of rereads between two counts of the entries of files that nothing has to be done to.
	recountEvery = 60
)

// Sealed is a store whose values may be encrypted.
type Sealed interface {
	CountSealed(ctx context.Context) (sealed, stale int, err error)
	Reseal(ctx context.Context, after string) (last string, changed int, err error)
	sealCounts() (kind string, counts *sealCounts)
}

func (b *Bolt) sealCounts() (kind string, counts *sealCounts) { return b.kind, &b.counts }

func (e *Etcd) sealCounts() (kind string, counts *sealCounts) { return e.options.Kind, &e.counts }

// sealCounts are the encrypted entries of a store, when last counted.
type sealCounts struct {
	sealed, stale atomic.Int64 // stale: with another key than the current one
}

// Rotation keeps files encrypted with the first key of a key file.
type Rotation struct {
	Keys  *envelope.KeyFile
	Files []Sealed
	Clock clock.WithTicker
	Log   logr.Logger
}

// Stale is the number of entries that have yet to be encrypted anew, when last counted.
func (r *Rotation) Stale() (n int64) {
	for _, file := range r.Files {
		_, counts := file.sealCounts()
		n += counts.stale.Load()
	}
	return n
}

// Progress is how far the encryption with the current key is.
type Progress struct {
	Key           string // the current one
	Sealed, Stale int64  // entries with that key, and with another one, when last counted
}

// Progress returns the progress over all files.
func (r *Rotation) Progress() Progress {
	p := Progress{Key: r.Keys.Current(), Stale: r.Stale()}
	for _, file := range r.Files {
		_, counts := file.sealCounts()
		p.Sealed += counts.sealed.Load()
	}
	p.Sealed = max(0, p.Sealed-p.Stale)
	return p
}

// Run takes up changes of the key file, and encrypts the entries of the files anew in the background, until ctx ends.
func (r *Rotation) Run(ctx context.Context) error {
	ticker := r.Clock.NewTicker(rereadEvery)
	defer ticker.Stop()
	done := false // every entry has the current key
	for round := 1; ; round++ {
		switch changed, err := r.Keys.Reread(); {
		case err != nil:
			r.Log.Error(err, "Encryption keys not taken up; those from before stay in use")
		case changed:
			r.Log.Info("Encryption keys taken up", "keys", r.Keys.Names(), "encrypts", r.Keys.Current())
			done = false
		}
		if !done || round%recountEvery == 0 {
			err := r.reseal(ctx, done)
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

// reseal encrypts all entries with the current key. A recount is not logged.
func (r *Rotation) reseal(ctx context.Context, recount bool) error {
	for _, file := range r.Files {
		kind, counts := file.sealCounts()
		sealed, stale, err := file.CountSealed(ctx)
		if err != nil {
			return fmt.Errorf("looking at file %s: %w", kind, err)
		}
		counts.sealed.Store(int64(sealed))
		counts.stale.Store(int64(stale))
		for after, more := "", stale > 0; more; more = after != "" {
			last, changed, err := file.Reseal(ctx, after)
			if err != nil {
				return fmt.Errorf("file %s: %w", kind, err)
			}
			counts.stale.Add(int64(-changed))
			after = last
			select {
			case <-r.Clock.After(resealPause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		counts.stale.Store(0)
		if stale == 0 && recount {
			continue
		}
		r.Log.Info("Every entry is encrypted with the current key", "file", kind, "key", r.Keys.Current(), "changed", stale)
	}
	return nil
}
