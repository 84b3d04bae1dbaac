// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"testing"

	"navix.sh/atoll/e2e/monitoring"
)

// checkMetrics: a worker with a hub registers the metrics and labels that dashboards and alerts use, and promlint has no
// complaints.
func checkMetrics(t *testing.T, recorder *monitoring.Recorder) {
	t.Helper()
	if err := recorder.CheckCharts("../../../charts", "atoll_worker_", "atoll_link_"); err != nil {
		t.Error(err)
	}
}
