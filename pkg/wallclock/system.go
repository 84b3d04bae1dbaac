// SPDX-License-Identifier: Apache-2.0

//go:build !atolltest

package wallclock

import "k8s.io/utils/clock"

// New returns the system's clock.
func New() (clock.WithTicker, error) { return clock.RealClock{}, nil }
