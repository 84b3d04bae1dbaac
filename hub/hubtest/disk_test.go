// SPDX-License-Identifier: Apache-2.0

package hubtest

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/store/storetest"
)

func TestDiskConforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := NewDisk(nil).Open()
		must.Succeed(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}

// A write in flight at a kill is on the disk or not, depending on the moment of the kill; a later write never is.
func TestDiskOfAKilledProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		killedAfter time.Duration
		kept        bool
	}{
		"killed before the write was durable": {time.Millisecond, false},
		"killed before it was told so":        {5 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := NewDisk(func() time.Duration { return 8 * time.Millisecond })
				before, err := disk.Open()
				must.Succeed(t, err)
				done := make(chan error, 1)
				go func() {
					_, err := store.CompareAndSwap(t.Context(), before, "a", 0, []byte("1"))
					done <- err
				}()
				time.Sleep(tc.killedAfter)
				disk.Detach()
				if err := <-done; (err == nil) != tc.kept {
					t.Errorf("the write answers %v", err)
				}
				after, err := disk.Open()
				must.Succeed(t, err)
				if _, ok, err := after.Get(t.Context(), "a"); ok != tc.kept || err != nil {
					t.Errorf("found %t, %v, want %t", ok, err, tc.kept)
				}
				if _, err := store.CompareAndSwap(t.Context(), before, "b", 0, nil); !errors.Is(err, syscall.EIO) {
					t.Errorf("the killed process writes on: %v", err)
				}
			})
		})
	}
}

func TestFullAndDamagedDisk(t *testing.T) {
	disk := NewDisk(nil)
	s, err := disk.Open()
	must.Succeed(t, err)
	disk.SetFull(true)
	if _, err := store.CompareAndSwap(t.Context(), s, "a", 0, nil); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk answers %v", err)
	}
	disk.SetFull(false)
	if _, err := store.CompareAndSwap(t.Context(), s, "a", 0, nil); err != nil {
		t.Error(err)
	}
	backup := disk.Backup()
	disk.Damage()
	if _, err := disk.Open(); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged disk answers %v", err)
	}
	disk.Restore(backup)
	if _, err := disk.Open(); err != nil || disk.Len() != 1 {
		t.Errorf("restored: %d entries, %v", disk.Len(), err)
	}
	disk.Erase()
	if disk.Len() != 0 {
		t.Errorf("erased: %d entries", disk.Len())
	}
}
