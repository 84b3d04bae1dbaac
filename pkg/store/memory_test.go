// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"testing"

	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/store/storetest"
)

func TestMemoryConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return store.NewMemory() })
}

func TestMemoryIsShared(t *testing.T) {
	storetest.RunShared(t, func(*testing.T) (a, b store.Shared) {
		s := store.NewMemory()
		return s, s
	})
}
