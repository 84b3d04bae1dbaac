// SPDX-License-Identifier: Apache-2.0

package plural

import "testing"

func TestPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 idle Pods", 1: "1 idle Pod", 2: "2 idle Pods"} {
		if got := Of(n, "idle Pod"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if one, two := Form(int32(1), "Pod is", "Pods are"), Form(int32(2), "Pod is", "Pods are"); one != "1 Pod is" || two != "2 Pods are" {
		t.Errorf("%q, %q", one, two)
	}
}
