// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"
	"testing"
	"time"
)

func TestMapForgets(t *testing.T) {
	start := time.Now()
	var dropped []string
	m := New(10*time.Minute, 2, func(key string, _ int) { dropped = append(dropped, key) })
	m.Put(start, "a", 1)
	m.Put(start.Add(time.Minute), "b", 2)
	m.Put(start.Add(2*time.Minute), "a", 3) // its lifetime starts again
	m.Put(start.Add(3*time.Minute), "c", 4) // one too many: the oldest is dropped
	if _, ok := m.Get(start.Add(3*time.Minute), "b"); ok || m.Len() != 2 {
		t.Errorf("b is remembered, of %d", m.Len())
	}
	if v, ok := m.Get(start.Add(11*time.Minute), "a"); !ok || v != 3 {
		t.Errorf("a is %d, %v", v, ok)
	}
	if _, ok := m.Get(start.Add(12*time.Minute), "a"); ok {
		t.Error("a is remembered for longer than it should")
	}
	if m.Get(start.Add(time.Hour), "c"); m.Len() != 0 || fmt.Sprint(dropped) != "[b a c]" {
		t.Errorf("%d left; dropped %v", m.Len(), dropped)
	}
}
