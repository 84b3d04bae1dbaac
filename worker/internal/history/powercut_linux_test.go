// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/durable/powercut"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/worker/internal/history"
)

// TestKeptRecordsSurviveAPowerCut: each with its claim key, once, until as many younger ones as are retained exist.
func TestKeptRecordsSurviveAPowerCut(t *testing.T) {
	const (
		retained   = 6
		concurrent = 4 // the first ones: their marks are in another order than their numbers, by which records are dropped
	)
	openIn := func(dir string) (*history.History, error) {
		s, err := store.OpenBolt(filepath.Join(dir, "history.db"), history.Kind)
		if err != nil {
			return nil, err
		}
		return history.Open(context.Background(), history.Options{
			Store: s, Time: clock.RealClock{}, Metrics: prometheus.NewRegistry(), MaxRecords: retained,
		})
	}
	recordOf := func(i int) history.Record { return record(i, keyed("key-"+strconv.Itoa(i), int32(i))) }
	powercut.Run(t, powercut.Case{
		Do: func(dir string, mark func(string)) error {
			h, err := openIn(dir)
			if err != nil {
				return err
			}
			keep := func(i int) error {
				_, err := h.Keep(context.Background(), recordOf(i))
				if err == nil {
					mark(strconv.Itoa(i))
				}
				return err
			}
			errs := make([]error, 10)
			var at sync.WaitGroup
			for i := range concurrent {
				at.Go(func() { errs[i] = keep(i) })
			}
			at.Wait()
			for i := concurrent; i < len(errs); i++ { // and drops the oldest
				errs[i] = keep(i)
			}
			return errors.Join(append(errs, h.Close())...)
		},
		Check: func(dir string, marks []string) (err error) {
			h, err := openIn(dir)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, h.Close()) }()
			for n, mark := range marks {
				i, err := strconv.Atoi(mark)
				if err != nil {
					return err
				}
				if i < concurrent {
					n = 0
				}
				got, err := h.Get(context.Background(), id(i))
				key, known := h.ByKey("key-" + mark)
				switch {
				case got == nil && err == nil && !known && len(marks)-n >= retained: // one more may have been kept, and not marked
				case err != nil, !known, key.ID != id(i), !proto.Equal(got, recordOf(i).Sandbox):
					return errors.Join(fmt.Errorf("record %s is %v, its key is known: %t", mark, got, known), err)
				}
			}
			page, _, err := h.List(context.Background(), "", 100, anySandbox)
			if err != nil || len(page) != h.Len() || len(page) > retained+4 {
				return errors.Join(fmt.Errorf("%d records are listed of %d", len(page), h.Len()), err)
			}
			var ids []string
			for _, s := range page {
				ids = append(ids, s.GetId())
			}
			if slices.Sort(ids); len(slices.Compact(ids)) != len(page) {
				return fmt.Errorf("a sandbox has two records: %v", ids)
			}
			return nil
		},
	})
}
