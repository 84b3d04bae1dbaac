// SPDX-License-Identifier: Apache-2.0

package heap

import (
	"runtime/debug"
	"testing"
)

func TestRelaxHeedsGOGC(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "100")
	Relax()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("with GOGC set: %d, want it left alone", got)
	}
	t.Setenv("GOGC", "")
	Relax()
	if got := debug.SetGCPercent(100); got != percent {
		t.Errorf("without GOGC: %d, want %d", got, percent)
	}
}
