// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"

	"navix.sh/atoll/e2e/monitoring"
	"navix.sh/atoll/pkg/audit"
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
	o := testOptions(t)
	o.audit = audit.Flags{To: []string{"file"}, Megabytes: 4, Files: 1, Age: time.Hour}
	o.replicas = replicaOptions{peerListen: "127.0.0.1:0", gossipListen: "127.0.0.1:0"}
	must.Succeed(t, h.build(t.Context(), o))
	if err := recorder.CheckCharts("../charts", "atoll_hub_", "atoll_link_"); err != nil {
		t.Error(err)
	}
}
