// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"

	"navix.sh/atoll/e2e/monitoring"
)

// Dashboards and alerts use metrics and labels that the hub registers, and promlint has no complaint about any.
func TestMetrics(t *testing.T) {
	recorder := monitoring.NewRecorder()
	h := &hub{log: testlog.New(t), metrics: recorder}
	defer func() {
		if err := h.close(); err != nil {
			t.Error(err)
		}
	}()
	must.Succeed(t, h.build(t.Context(), testOptions(t)))
	if err := recorder.CheckCharts("../charts", "atoll_hub_", "atoll_link_"); err != nil {
		t.Error(err)
	}
}
