// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntil(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		works time.Duration // from then on
		stuck bool          // a try lasts until its context ends
		want  error
		took  time.Duration
	}{
		"at once":                   {0, false, nil, 0},
		"after a while":             {time.Second, false, nil, time.Second},
		"too late":                  {time.Hour, false, broken, time.Minute},
		"the last try is cut short": {time.Hour, true, broken, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				err := Until(t.Context(), time.Minute, "it", func(ctx context.Context) error {
					switch since := time.Since(begin); {
					case since >= tc.works:
						return nil
					case tc.stuck && since > time.Second:
						<-ctx.Done()
						return ctx.Err()
					}
					return broken
				})
				if !errors.Is(err, tc.want) || tc.want == nil && err != nil {
					t.Errorf("got %v, want %v", err, tc.want)
				}
				if took := time.Since(begin); took < tc.took || took > tc.took+tc.took/20 {
					t.Errorf("it took %s, want %s, and a twentieth more at most", took, tc.took)
				}
			})
		})
	}
}
