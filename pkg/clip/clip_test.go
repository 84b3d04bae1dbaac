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

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "one": "one", " two\n\t words ": "two words", "\x1b[2Jclear\u009b31m\x7f": "[2Jclear 31m", "é": "é",
	} {
		if got := Line(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	all := []string{"a", "b", "c", "d"}
	for n, want := range []string{"", "a", "a, b", "a, b and 1 more", "a, b and 2 more"} {
		if got := Names(all[:n], 2); got != want {
			t.Errorf("%d names are %q, want %q", n, got, want)
		}
	}
}
