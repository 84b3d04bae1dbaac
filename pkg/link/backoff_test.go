// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
)

func TestDelayIsFullJitterUnderAGrowingCeiling(t *testing.T) {
	longest := func(n int64) int64 { return n - 1 }
	for _, test := range []struct {
		failures   int
		away, want time.Duration
	}{
		{1, 0, 200 * time.Millisecond},
		{2, 100 * time.Millisecond, 400 * time.Millisecond},
		{3, time.Second, 800 * time.Millisecond},
		{6, 5 * time.Second, 2 * time.Second},
		{9, 8 * time.Second, 2 * time.Second},
		{30, 20 * time.Second, 5 * time.Second},
		{1000, 2 * time.Minute, 30 * time.Second},
		{1000, 24 * time.Hour, 30 * time.Second},
		// Attempts that take long themselves.
		{2, 10 * time.Minute, 400 * time.Millisecond},
	} {
		if got := delay(test.failures, test.away, nil, longest) + 1; got != test.want {
			t.Errorf("ceiling after %d failures in %s: %s, want %s", test.failures, test.away, got, test.want)
		}
		if got := delay(test.failures, test.away, nil, func(int64) int64 { return 0 }); got != 0 {
			t.Errorf("floor after %d failures in %s: %s, want 0", test.failures, test.away, got)
		}
	}
	advice := fmt.Errorf("wrapped: %w", &RetryAfterError{Err: errors.New("refused"), After: 5 * time.Second})
	if got := delay(1, 0, advice, func(int64) int64 { return 0 }); got != 5*time.Second {
		t.Errorf("with advice: %s, want 5s", got)
	}
}

func TestRunStartsOverAndSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var gaps []time.Duration
		last := time.Now()
		attempts := 0
		d := Dial{Target: "127.0.0.1:1", Credentials: &Credentials{good: &material{}}, Clock: clock.RealClock{}, Log: logr.Discard()}
		err := Run(ctx, d, func(context.Context, federationv1.LinkClient) error {
			gaps = append(gaps, time.Since(last))
			if attempts++; attempts == 12 {
				time.Sleep(settled)
			}
			if attempts == 14 {
				cancel()
			}
			last = time.Now()
			return errors.New("broken")
		})
		must.Succeed(t, err)
		var sum time.Duration
		for _, g := range gaps[1:12] {
			sum += g
		}
		if sum < 2*time.Second {
			t.Errorf("eleven failures in a row took %s: it does not back off", sum)
		}
		if gaps[12] > MinBackoff {
			t.Errorf("after a stream that lasted, the first pause is %s, want at most %s", gaps[12], MinBackoff)
		}
	})
}

func TestRunRefusesAnAddressItCannotRead(t *testing.T) {
	d := Dial{Target: "no-port", Clock: clock.RealClock{}, Log: logr.Discard()}
	if err := Run(t.Context(), d, nil); err == nil {
		t.Error("an address without a port was accepted")
	}
}
