// SPDX-License-Identifier: Apache-2.0

package rollout

import "testing"

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		text        string
		ok          bool
		of10, of101 int
	}{
		{"", true, 2, 21}, {"20%", true, 2, 21}, {"1%", true, 1, 2}, {"100%", true, 10, 101}, {"0%", true, 0, 0},
		{"0", true, 0, 0}, {"3", true, 3, 3}, {"2147483647", true, 2147483647, 2147483647},
		{"-1", false, 2, 21}, {"101%", false, 2, 21}, {"-5%", false, 2, 21}, {"many", false, 2, 21}, {"1.5", false, 2, 21},
		{"1.5%", false, 2, 21}, {"3 ", false, 2, 21}, {"%", false, 2, 21}, {"99999999999", false, 2, 21}, {"99999999999999999999%", false, 2, 21},
	} {
		limit, err := Parse(tc.text)
		if (err == nil) != tc.ok || limit.Of(10) != tc.of10 || limit.Of(101) != tc.of101 {
			t.Errorf("%q: %d of 10, %d of 101, %v; want %d and %d, valid: %v", tc.text, limit.Of(10), limit.Of(101), err, tc.of10, tc.of101, tc.ok)
		}
	}
}
