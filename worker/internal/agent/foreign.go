// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

var errForeignGap = errors.New("a message about other clusters is missing")

// foreign passes each message on exactly once. A missing message may contain data that no later message repeats. It is therefore an error,
// which restarts the stream with a complete state.
func (u *uplink) foreign(f *federationv1.Foreign) error {
	if number := f.GetNumber(); number != 0 {
		switch {
		case number <= u.lastForeign:
			return nil
		case number != u.lastForeign+1:
			return fmt.Errorf("%w: %d came after %d", errForeignGap, number, u.lastForeign)
		}
		u.lastForeign = number
	}
	u.agent.opts.Foreign.Receive(f)
	return nil
}
