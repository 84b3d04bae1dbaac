// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestTheDemoTellsWhereLogsAndMetricsAre(t *testing.T) {
	got := whereToLook("/tmp/logs", map[string]string{"west": "http://127.0.0.1:2/metrics", "hub": "http://127.0.0.1:1/metrics"})
	const want = "Logs: /tmp/logs\nMetrics of hub: http://127.0.0.1:1/metrics\nMetrics of west: http://127.0.0.1:2/metrics\n"
	if got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}
