// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"testing"

	"navix.sh/atoll/worker/internal/claim/claimtest"
)

func TestMain(m *testing.M) { claimtest.Plane.Main(m) }
