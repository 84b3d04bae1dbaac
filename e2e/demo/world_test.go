// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestTheDemoTellsWhereLogsLocalAPIsAndMetricsAre(t *testing.T) {
	got := whereToLook("/tmp/logs", map[string]string{"west": "http://127.0.0.1:3"},
		map[string]string{"west": "http://127.0.0.1:2/metrics", "hub": "http://127.0.0.1:1/metrics"})
	const want = "Logs: /tmp/logs\nLocal API of west: http://127.0.0.1:3\nMetrics of hub: http://127.0.0.1:1/metrics\n" +
		"Metrics of west: http://127.0.0.1:2/metrics\n"
	if got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}
