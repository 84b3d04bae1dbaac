// SPDX-License-Identifier: Apache-2.0

//go:build unix

package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"navix.sh/atoll/pkg/store"
)

const fullEnv = "STORE_TEST_FULL_DISK_FILE"

// TestAFullDisk, by a limit on the size of files: a write fails and changes nothing, reads continue, and with room again so do writes.
func TestAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), fullEnv+"="+path)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := open(t, path) // and it is whole
	entries, err := s.Range(t.Context(), "", "", 0)
	if err != nil || len(entries) != 2*batch {
		t.Errorf("%d entries, want %d: %v", len(entries), 2*batch, err)
	}
}

const batch = 200

func fillTheDisk(path string) {
	signal.Ignore(syscall.SIGXFSZ)
	err := func() error {
		s, err := store.OpenBolt(path, "test")
		if err != nil {
			return err
		}
		return errors.Join(writeAroundAFullDisk(s), s.Close())
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func writeAroundAFullDisk(s *store.Bolt) error {
	ctx := context.Background()
	put := func(i int) error {
		_, err := store.CompareAndSwap(ctx, s, fmt.Sprintf("k%03d", i), 0, make([]byte, 1000))
		return err
	}
	for i := range batch {
		if err := put(i); err != nil {
			return err
		}
	}
	// Below what the file has: pages cannot be written. Above: the file cannot grow.
	for _, limit := range []uint64{64 << 10, 600 << 10} {
		if err := limitFiles(limit); err != nil {
			return err
		}
		failed := 0
		for i := batch; i < 3*batch; i++ {
			if err := put(i); err != nil {
				failed++
				break
			}
			if _, err := s.Commit(ctx, store.Txn{Deletes: []string{fmt.Sprintf("k%03d", i)}}); err != nil {
				return fmt.Errorf("deleting: %w", err)
			}
		}
		if limit == 64<<10 && (failed == 0 || s.Failure() == nil) {
			return fmt.Errorf("%d writes failed, the last as %w", failed, s.Failure())
		}
		if entries, err := s.Range(ctx, "", "", 0); err != nil || len(entries) != batch {
			return fmt.Errorf("%d entries with the disk full: %w", len(entries), err)
		}
	}
	if err := limitFiles(^uint64(0)); err != nil {
		return err
	}
	for i := batch; i < 2*batch; i++ {
		if err := put(i); err != nil {
			return fmt.Errorf("with room again: %w", err)
		}
	}
	return s.Failure()
}

func limitFiles(most uint64) error {
	limit := syscall.Rlimit{}
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = min(most, limit.Max)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}
