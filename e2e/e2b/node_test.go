// SPDX-License-Identifier: Apache-2.0

//go:build node

package e2b_test

import (
	"os"
	"os/exec"
	"testing"
)

// The stock npm package works unchanged.
func TestNpmClient(t *testing.T) {
	ready(t)
	cmd := exec.CommandContext(t.Context(), "../../tools/e2b-client/run", env.Name)
	cmd.Env = append(os.Environ(), "E2B_API_URL="+origin, "E2B_SANDBOX_URL="+origin, "E2B_API_KEY="+apiKey)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}
