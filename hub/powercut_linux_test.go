// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"

	"navix.sh/atoll/pkg/durable/powercut"
	"navix.sh/atoll/pkg/envelope"
)

// TestANewEncryptionKeySurvivesAPowerCut: the file is whole once the command has reported success.
func TestANewEncryptionKeySurvivesAPowerCut(t *testing.T) {
	powercut.Run(t, powercut.Case{
		Do: func(dir string, mark func(string)) error {
			_, err := atollHub(t, "encryption-key", "new", "--name", "k1", "--file", filepath.Join(dir, "keys.yaml"))
			if err == nil {
				mark("made")
			}
			return err
		},
		Check: func(dir string, marks []string) error {
			if len(marks) == 0 {
				return nil
			}
			_, err := envelope.OpenKeyFile(filepath.Join(dir, "keys.yaml"))
			return err
		},
	})
}
