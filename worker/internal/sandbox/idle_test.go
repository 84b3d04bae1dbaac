// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/e2e/must"
)

func TestIdleSince(t *testing.T) {
	pod := stopped()
	pod.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
	if got := IdleSince(pod); !got.Equal(noon.Add(-time.Hour)) {
		t.Errorf("a Pod that never ran a sandbox is idle since %s", got)
	}
	pod, err := apply(t, pod, IdlePatch(pod, poolSpec(), noon))
	must.Succeed(t, err)
	if got := IdleSince(pod); !got.Equal(noon) {
		t.Errorf("a Pod that was made idle at noon is so since %s", got)
	}
}

func TestAMarkLosesToAClaim(t *testing.T) {
	pod := idlePod()
	patch := MarkPatch(pod, noon)
	pod, err := apply(t, pod, patch)
	if err != nil || MarkedAt(pod) == "" {
		t.Fatalf("marked %q, %v", MarkedAt(pod), err)
	}
	claim, _ := mustClaim(t, pod, fullGrant(idleImage))
	if pod, err = apply(t, pod, claim); err != nil || MarkedAt(pod) != "" {
		t.Fatalf("claimed, and still marked %q, %v", MarkedAt(pod), err)
	}
	for _, late := range [][]byte{patch, UnmarkPatch(pod)} {
		if _, err := apply(t, pod, late); err == nil {
			t.Error("a claimed Pod was marked")
		}
	}
}
