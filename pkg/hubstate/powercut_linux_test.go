// SPDX-License-Identifier: Apache-2.0

package hubstate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"navix.sh/atoll/pkg/durable"
	"navix.sh/atoll/pkg/durable/powercut"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// TestI2ARestoreSurvivesAPowerCut: a hub finds the old files or, once acknowledged, the archive's, and clusters of both; and it can go on.
func TestI2ARestoreSurvivesAPowerCut(t *testing.T) {
	restore := func(dir string) error {
		f, err := os.Open(filepath.Join(dir, "archive"))
		if err != nil {
			return err
		}
		_, err = hubstate.Restore(context.Background(), f, filepath.Join(dir, "data"), true, nil)
		return errors.Join(err, f.Close())
	}
	for name, c := range map[string]struct {
		before   func(dir string) error
		clusters int
	}{
		"over files": {filesAndAnOlderArchive, 2},
		"in a new directory": {func(dir string) error {
			return errors.Join(filesAndAnOlderArchive(dir), os.RemoveAll(filepath.Join(dir, "data")))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			powercut.Run(t, powercut.Case{
				Before: c.before,
				Do: func(dir string, mark func(string)) error {
					err := restore(dir)
					if err == nil {
						mark("restored")
					}
					return err
				},
				Check: func(dir string, marks []string) error {
					data := filepath.Join(dir, "data")
					if err := checkPair(data, c.clusters, len(marks) > 0); err != nil {
						return err
					}
					if err := restore(dir); err != nil {
						return fmt.Errorf("again: %w", err)
					}
					return checkPair(data, c.clusters, true)
				},
			})
		})
	}
}

// filesAndAnOlderArchive: cluster north has registered since, and a claim was written.
func filesAndAnOlderArchive(dir string) error {
	ctx, data := context.Background(), filepath.Join(dir, "data")
	claims, err1 := hubstate.Open(data, hubstate.Claims)
	registry, err2 := hubstate.Open(data, hubstate.Registry)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	ledger := hubstate.Ledger{Identity: hubstate.Identity{ID: "a"}}
	err := errors.Join(hubstate.SaveLedger(ctx, claims, ledger), hubstate.SaveIdentity(ctx, registry, ledger.Identity),
		hubstate.SaveRecord(ctx, registry, hubstate.Record{ClusterID: "east", UID: "e"}))
	files := hubstate.Files{Claims: claims, Registry: registry, Dir: data, Version: "v1"}
	err = errors.Join(err, durable.WriteFile(filepath.Join(dir, "archive"), 0o600, func(f *os.File) error {
		return files.Backup(ctx, time.Unix(0, 0), f)
	}))
	_, claimed := store.CompareAndSwap(ctx, claims, "since", 0, nil)
	return errors.Join(err, claimed, hubstate.SaveRecord(ctx, registry, hubstate.Record{ClusterID: "north", UID: "n"}), claims.Close(),
		registry.Close())
}

// checkPair checks what a hub would start on. Without claims it asks the clusters in the registry.
func checkPair(dir string, clusters int, restored bool) (err error) {
	if _, err := os.Stat(hubstate.Claims.Path(dir)); errors.Is(err, os.ErrNotExist) && clusters == 1 && !restored {
		return nil
	}
	claims, err1 := hubstate.Open(dir, hubstate.Claims)
	registry, err2 := hubstate.Open(dir, hubstate.Registry)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claims.Close(), registry.Close()) }()
	ctx := context.Background()
	ledger, err1 := hubstate.LoadLedger(ctx, claims)
	_, since, err2 := claims.Get(ctx, "since")
	records, err3 := hubstate.LoadRecords(ctx, registry)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if ledger == nil || ledger.Restored == since || restored && !ledger.Restored {
		return fmt.Errorf("the ledger is %+v, with what was written since: %t", ledger, since)
	}
	if len(records) != clusters {
		return fmt.Errorf("the registry knows %+v", records)
	}
	if _, err := os.Stat(hubstate.Claims.Path(dir) + ".before-restore"); restored && clusters > 1 {
		return err
	}
	return nil
}
