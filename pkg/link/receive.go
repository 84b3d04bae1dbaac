// SPDX-License-Identifier: Apache-2.0

package link

import (
	"time"

	"k8s.io/utils/clock"
)

// Receive waits for one frame of a stream, and returns the error late if it does not arrive in time. Its goroutine ends with the stream's
// handler at the latest.
func Receive[F any](recv func() (F, error), on clock.Clock, timeout time.Duration, late error) (F, error) {
	type received struct {
		frame F
		err   error
	}
	got := make(chan received, 1)
	go func() {
		frame, err := recv()
		got <- received{frame, err}
	}()
	timer := on.NewTimer(timeout)
	defer timer.Stop()
	select {
	case r := <-got:
		return r.frame, r.err
	case <-timer.C():
		return *new(F), late
	}
}
