// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"navix.sh/atoll/pkg/durable/powercut"
	"navix.sh/atoll/pkg/hubstate"
)

// TestABackupSurvivesAPowerCut: the file is whole, and exists when the command has reported success.
func TestABackupSurvivesAPowerCut(t *testing.T) {
	powercut.Run(t, powercut.Case{
		Do: func(dir string, mark func(string)) error {
			address := serveHub(t, &hubServer{archive: archive(t)})
			_, err := atollctl(t, "hub", "backup", filepath.Join(dir, "hub.tar.gz"), "--server", address)
			if err == nil {
				mark("backed up")
			}
			return err
		},
		Check: func(dir string, marks []string) error {
			f, err := os.Open(filepath.Join(dir, "hub.tar.gz"))
			if errors.Is(err, os.ErrNotExist) && len(marks) == 0 {
				return nil
			} else if err != nil {
				return err
			}
			defer f.Close()
			if _, err := hubstate.Inspect(f); err != nil {
				return fmt.Errorf("half a backup: %w", err)
			}
			return nil
		},
	})
}
