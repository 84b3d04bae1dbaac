// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"testing"

	"navix.sh/atoll/worker/internal/claim/claimtest"
)

func TestMain(m *testing.M) { claimtest.Plane.Main(m) }
