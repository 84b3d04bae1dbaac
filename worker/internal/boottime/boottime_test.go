// SPDX-License-Identifier: Apache-2.0

package boottime

import "testing"

func TestBoottimeAdvances(t *testing.T) {
	if a, b := Now(), Now(); a <= 0 || b < a {
		t.Errorf("boottime went from %v to %v", a, b)
	}
}
