// SPDX-License-Identifier: Apache-2.0

package registrycopy

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"navix.sh/atoll/pkg/durable/powercut"
)

// TestTheFileSurvivesAPowerCut: it is the last acknowledged one, or the one after.
func TestTheFileSurvivesAPowerCut(t *testing.T) {
	documents := []string{strings.Repeat("a", 3000), "b", strings.Repeat("c", 9000)}
	powercut.Run(t, powercut.Case{
		Do: func(dir string, mark func(string)) error {
			for _, d := range documents {
				if err := File(filepath.Join(dir, "copy")).Write(context.Background(), []byte(d)); err != nil {
					return err
				}
				mark(d[:1])
			}
			return nil
		},
		Check: func(dir string, marks []string) error {
			data, err := File(filepath.Join(dir, "copy")).Read(context.Background())
			if errors.Is(err, ErrNone) && len(marks) == 0 {
				return nil
			}
			for _, d := range documents[max(0, len(marks)-1):min(len(marks)+1, len(documents))] {
				if string(data) == d {
					return nil
				}
			}
			return errors.Join(fmt.Errorf("it has %d bytes", len(data)), err)
		},
	})
}
