// SPDX-License-Identifier: Apache-2.0

package hubtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"navix.sh/atoll/pkg/store"
)

// ErrDamaged is the error of a disk whose content is unreadable.
var ErrDamaged = errors.New("the file is damaged")

// maxKey equals the limit of package store.
const maxKey = 1024

// Disk holds the entries of one store.
type Disk struct {
	mu       sync.Mutex
	entries  map[string]store.Entry
	revision uint64
	owner    *file
	full     bool
	damaged  bool
	latency  func() time.Duration
}

// NewDisk returns an empty disk. latency is drawn for each commit, half of it before and half after the commit becomes durable;
// nil means none.
func NewDisk(latency func() time.Duration) *Disk {
	if latency == nil {
		latency = func() time.Duration { return 0 }
	}
	return &Disk{entries: map[string]store.Entry{}, latency: latency}
}

// Open opens the disk for a process, and takes it from the previous one.
func (d *Disk) Open() (store.Store, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.damaged {
		return nil, ErrDamaged
	}
	d.owner = &file{disk: d, closed: make(chan struct{})}
	return d.owner, nil
}

// Detach takes the disk from its process: that process's later writes are lost.
func (d *Disk) Detach() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owner = nil
}

// SetFull makes every commit fail, or succeed again.
func (d *Disk) SetFull(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

// Damage makes the disk unreadable for the next process that opens it.
func (d *Disk) Damage() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.damaged = true
}

// Erase empties the disk, and repairs it.
func (d *Disk) Erase() { d.Restore(Image{}) }

// Image is a copy of a disk's content.
type Image struct {
	entries  map[string]store.Entry
	revision uint64
}

// Backup copies the content.
func (d *Disk) Backup() Image {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Image{maps.Clone(d.entries), d.revision}
}

// Restore replaces the content by a copy.
func (d *Disk) Restore(image Image) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owner, d.damaged = nil, false
	d.entries, d.revision = maps.Clone(image.entries), image.revision
	if d.entries == nil {
		d.entries = map[string]store.Entry{}
	}
}

// Len returns the number of entries.
func (d *Disk) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.entries)
}

// file is a Disk that one process has opened.
type file struct {
	disk    *Disk
	once    sync.Once
	closed  chan struct{}
	pending sync.WaitGroup
}

var _ store.Store = (*file)(nil)

// Get implements store.Store.
func (f *file) Get(ctx context.Context, key string) (store.Entry, bool, error) {
	if err := f.usable(ctx); err != nil {
		return store.Entry{}, false, err
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	e, ok := f.disk.entries[key]
	e.Value = bytes.Clone(e.Value)
	return e, ok, nil
}

// Range implements store.Store.
func (f *file) Range(ctx context.Context, prefix, after string, limit int) ([]store.Entry, error) {
	if err := f.usable(ctx); err != nil {
		return nil, err
	}
	if limit < 1 || limit > store.MaxRange {
		limit = store.MaxRange
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	var keys []string
	for key := range f.disk.entries {
		if strings.HasPrefix(key, prefix) && key > after {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var out []store.Entry
	for _, key := range keys[:min(limit, len(keys))] {
		e := f.disk.entries[key]
		e.Value = bytes.Clone(e.Value)
		out = append(out, e)
	}
	return out, nil
}

// Commit implements store.Store.
func (f *file) Commit(ctx context.Context, txn store.Txn) (uint64, error) {
	if err := f.usable(ctx); err != nil {
		return 0, err
	}
	if err := check(txn); err != nil {
		return 0, err
	}
	type result struct {
		revision uint64
		err      error
	}
	done := make(chan result, 1)
	takes := f.disk.delay()
	f.pending.Go(func() {
		time.Sleep(takes / 2)
		revision, err := f.disk.apply(f, txn)
		time.Sleep(takes - takes/2)
		done <- result{revision, err}
	})
	select {
	case r := <-done:
		return r.revision, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Revision returns the revision of the latest commit.
func (f *file) Revision() (uint64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return f.disk.revision, nil
}

// Close implements store.Store.
func (f *file) Close() error {
	f.once.Do(func() { close(f.closed) })
	f.pending.Wait()
	return nil
}

func (f *file) usable(ctx context.Context) error {
	select {
	case <-f.closed:
		return store.ErrClosed
	default:
		return ctx.Err()
	}
}

func (d *Disk) delay() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latency()
}

// apply applies a transaction, unless the process that requested it has lost the disk.
func (d *Disk) apply(by *file, txn store.Txn) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.owner != by:
		return 0, fmt.Errorf("writing: %w", syscall.EIO)
	case d.full:
		return 0, fmt.Errorf("writing: %w", syscall.ENOSPC)
	}
	for _, c := range txn.If {
		if d.entries[c.Key].Revision != c.Revision {
			return 0, store.ErrConflict
		}
	}
	d.revision++
	for _, p := range txn.Puts {
		d.entries[p.Key] = store.Entry{Key: p.Key, Value: bytes.Clone(p.Value), Revision: d.revision}
	}
	for _, key := range txn.Deletes {
		delete(d.entries, key)
	}
	return d.revision, nil
}

func check(txn store.Txn) error {
	keys := slices.Clone(txn.Deletes)
	for _, c := range txn.If {
		keys = append(keys, c.Key)
	}
	for _, p := range txn.Puts {
		keys = append(keys, p.Key)
	}
	for _, key := range keys {
		if key == "" || len(key) > maxKey {
			return store.ErrKey
		}
	}
	return nil
}
