// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/durable/powercut"
	"navix.sh/atoll/pkg/store"
)

// TestADamagedHistoryIsPutAsideForGood: a power cut loses neither the damaged file nor the records in the new one.
func TestADamagedHistoryIsPutAsideForGood(t *testing.T) {
	const damaged = "no longer a store"
	path := func(dir string) string { return filepath.Join(dir, "history.db") }
	powercut.Run(t, powercut.Case{
		Before: func(dir string) error { return os.WriteFile(path(dir), []byte(damaged), 0o600) },
		Do: func(dir string, mark func(string)) error {
			s, err := openStore(context.Background(), clock.RealClock{}, path(dir), nil, logr.Discard())
			if err != nil {
				return err
			}
			if _, err := store.CompareAndSwap(context.Background(), s, "kept", 0, nil); err != nil {
				return err
			}
			mark("kept")
			return s.Close()
		},
		Check: func(dir string, marks []string) error {
			found, err := filepath.Glob(path(dir) + "*")
			aside := false
			for _, f := range found {
				data, readErr := os.ReadFile(f)
				err, aside = errors.Join(err, readErr), aside || string(data) == damaged
			}
			if err != nil || !aside {
				return errors.Join(fmt.Errorf("the damaged file is in none of %v", found), err)
			}
			s, err := openStore(context.Background(), clock.RealClock{}, path(dir), nil, logr.Discard())
			if err != nil {
				return err
			}
			_, kept, err := s.Get(context.Background(), "kept")
			if err == nil && !kept && len(marks) > 0 {
				err = errors.New("what was kept is lost")
			}
			return errors.Join(err, s.Close())
		},
	})
}
