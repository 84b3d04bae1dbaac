// SPDX-License-Identifier: Apache-2.0

package apitime

import "testing"

func TestUpTimeAdvances(t *testing.T) {
	if a, b := UpTime(), UpTime(); a <= 0 || b < a {
		t.Errorf("UpTime went from %v to %v", a, b)
	}
}
