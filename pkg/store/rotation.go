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
	// rereadEvery bounds the delay until a change of the key file is noticed. The file is polled, because a mounted Secret changes by a swap
	// of symbolic links.
	rereadEvery = 5 * time.Second
	// resealPause is the pause between two batches, which leaves the disk to other writes.
	resealPause = 5 * time.Millisecond
	// recountEvery is the number of rereads after which the entries are counted again although nothing has changed.
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

// sealCounts are the numbers of encrypted entries of a store at the last count.
type sealCounts struct {
	sealed, stale atomic.Int64 // stale: with another key than the current one
}

// Rotation keeps the values of files encrypted with the first key of a key file.
type Rotation struct {
	Keys  *envelope.KeyFile
	Files []Sealed
	Clock clock.WithTicker
	Log   logr.Logger
}

// Stale returns the number of entries that still have another key, as of the last count.
func (r *Rotation) Stale() (n int64) {
	for _, file := range r.Files {
		_, counts := file.sealCounts()
		n += counts.stale.Load()
	}
	return n
}

// Progress is the progress of encrypting all entries with the current key.
type Progress struct {
	Key           string // the current key
	Sealed, Stale int64  // entries with the current key, and with another one, as of the last count
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

// Run reloads the key file when it changes, and encrypts stale entries in the background, until ctx ends.
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

// reseal encrypts all stale entries with the current key. It does not log a recount that finds none.
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
