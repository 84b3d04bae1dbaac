// SPDX-License-Identifier: Apache-2.0

package podtunnel

import "testing"

func TestAPortWithoutAListenerIsToldAsThat(t *testing.T) {
	for why, want := range map[string]string{
		"dial tcp 127.0.0.1:81: connect: connection refused\n": "UNAVAILABLE: nothing listens on the port: dial tcp 127.0.0.1:81: " +
			"connect: connection refused",
		"pod not found": "UNAVAILABLE: the port was not reached: pod not found",
	} {
		if got := notReached(why).Error(); got != want {
			t.Errorf("%q is told as %q, want %q", why, got, want)
		}
	}
}
