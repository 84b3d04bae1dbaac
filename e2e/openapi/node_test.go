// SPDX-License-Identifier: Apache-2.0

//go:build node

package openapi_test

import (
	"os"
	"os/exec"
	"testing"
)

// A client that a stock generator made from the document type-checks and works.
func TestTypeScriptClient(t *testing.T) {
	ready(t)
	cmd := exec.CommandContext(t.Context(), "../../tools/openapi-client/run", atoll.HubEndpoint().URL(), "default", "python")
	cmd.Env = append(os.Environ(), "ATOLL_TOKEN="+tokens["all"])
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}
