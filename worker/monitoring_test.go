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
	problems, err := recorder.Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	queries, err := monitoring.Queries("../charts")
	if err != nil || len(queries) < 50 {
		t.Fatalf("%d queries, %v", len(queries), err)
	}
	if err := monitoring.Check(queries, recorder.Metrics("atoll_"), "atoll_worker_", "atoll_link_"); err != nil {
		t.Error(err)
	}
}
