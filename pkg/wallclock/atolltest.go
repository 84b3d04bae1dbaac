// SPDX-License-Identifier: Apache-2.0

//go:build atolltest

package wallclock

import (
	"os"

	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/wallclock/offset"
)

// New returns the system's clock, shifted by ATOLL_TEST_CLOCK_OFFSET.
func New() (clock.WithTicker, error) { return offset.New(os.Getenv("ATOLL_TEST_CLOCK_OFFSET")) }
