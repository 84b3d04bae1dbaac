// SPDX-License-Identifier: Apache-2.0

package clip

import "testing"

func TestText(t *testing.T) {
	for _, tt := range []struct {
		text string
		most int
		want string
	}{
		{"", 4, ""},
		{"four", 4, "four"},
		{"fives", 4, "f…"},
		{"ééé", 5, "é…"},
		{"ééé", 4, "…"},
		{"\xff", 4, "\uFFFD"},
	} {
		if got := Text(tt.text, tt.most); got != tt.want {
			t.Errorf("%q in %d bytes is %q, want %q", tt.text, tt.most, got, tt.want)
		}
	}
}
