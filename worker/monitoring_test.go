// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"navix.sh/atoll/e2e/monitoring"
)

// checkMetrics: dashboards and alerts ask for metrics and labels that a worker with a hub registers, and promlint has
// nothing to say of any.
func checkMetrics(t *testing.T, recorder *monitoring.Recorder) {
	t.Helper()
	if err := recorder.CheckCharts("../charts", "atoll_worker_", "atoll_link_"); err != nil {
		t.Error(err)
	}
}
