// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryRegistry outlives a fleet, as a disk does.
type memoryRegistry struct {
	mu      sync.Mutex
	records map[string]Record
	fail    error
	saves   int
}

func (r *memoryRegistry) Load(context.Context) ([]Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.records)), nil
}

func (r *memoryRegistry) Save(_ context.Context, record Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	if r.records == nil {
		r.records = map[string]Record{}
	}
	r.records[record.ClusterID] = record
	r.saves++
	return nil
}
