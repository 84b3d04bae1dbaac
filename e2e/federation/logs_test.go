// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// unwelcome are words that no log of a program may have, whatever was done to it: a right that the chart's RBAC lacks, a
// find of the race detector, a crash.
var unwelcome = []string{forbidden, "WARNING: DATA RACE", "panic:", "Observed a panic"}

// forbidden is what impostors are told, workers under a name that is not their cluster's.
const forbidden = " is forbidden: "

// checkLogs looks through all logs of hub and workers.
func checkLogs(dir string) error {
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		return errors.Join(err, fmt.Errorf("looking through the logs: %d in %s", len(logs), dir))
	}
	var errs []error
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("looking through the logs: %w", err)
		}
		for line := range bytes.Lines(text) {
			for _, word := range unwelcome {
				expected := word == forbidden && strings.Contains(filepath.Base(path), "-as-")
				if bytes.Contains(line, []byte(word)) && !expected {
					errs = append(errs, fmt.Errorf("%s: %s", filepath.Base(path), bytes.TrimSpace(line)))
				}
			}
		}
	}
	const most = 20
	if len(errs) > most {
		errs = append(errs[:most], fmt.Errorf("and %d more lines", len(errs)-most))
	}
	return errors.Join(errs...)
}
