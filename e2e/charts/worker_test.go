// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"testing"

	"navix.sh/atoll/e2e/charts/harness"
)

func workerRelease(values string) harness.Release {
	return harness.Release{Name: "atoll-worker", Namespace: "atoll-system", Chart: helm.Chart("worker"), Values: "clusterID: east\n" + values}
}

// installWorker installs the worker's chart until the end of the test. kwok stands in for the program: nobody but the
// test writes.
func installWorker(t *testing.T) {
	t.Helper()
	cluster := helm.In(east.Kubeconfig())
	if _, err := cluster.Install(t.Context(), workerRelease("replicas: 0")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Uninstall(context.Background(), workerRelease("")); err != nil {
			t.Error(err)
		}
	})
	enforced(t, step{
		by: user, args: "run intruder --image=registry.example/x --labels=agentbox.navix.sh/env=x --dry-run=server",
		refused: "metadata.labels: agentbox.navix.sh/env",
	})
}
