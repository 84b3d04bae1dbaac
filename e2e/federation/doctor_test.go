// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// I8: atollctl verify and doctor find nothing in a healthy federation, and both report a cluster whose worker was killed.
func TestI8_VerifyAndDoctorTellOfADeadWorker(t *testing.T) {
	ctx := testContext(t)
	newEnv(ctx, t, "doctor", equally(1)...)
	wait.For(t, patience, "doctor to find nothing", func(ctx context.Context) error {
		out, code := look(ctx, t, "doctor")
		return wait.If(code == 0, out)
	})
	if out, code := look(ctx, t, "verify", "--for=1m"); code != 0 {
		t.Fatalf("verify exits with %d:\n%s", code, out)
	}

	t.Cleanup(func() { must.Succeed(t, heal(context.WithoutCancel(ctx))) })
	must.Succeed(t, atoll.Worker("west").Kill())
	wait.For(t, patience, "doctor to tell of west", func(ctx context.Context) error {
		out, code := look(ctx, t, "doctor", "-o=json")
		var found []struct{ Reason, Severity, Cluster, Do string }
		if err := json.Unmarshal([]byte(out), &found); err != nil {
			return fmt.Errorf("%s%w", out, err)
		}
		told := slices.ContainsFunc(found, func(d struct{ Reason, Severity, Cluster, Do string }) bool {
			return d.Cluster == "west" && d.Severity == "critical" && d.Do != "" &&
				slices.Contains([]string{"NoLeader", "WorkerMissing", "WorkerUnavailable"}, d.Reason)
		})
		return wait.If(told && code == 1, out)
	})
	out, code := look(ctx, t, "verify", "--for=0s")
	if code != 1 || !strings.Contains(out, "I8  west, lease atoll-worker") {
		t.Errorf("verify exits with %d:\n%s", code, out)
	}
}

// look runs a command of atollctl that reads the hub and all clusters, and returns its output and its exit code.
func look(ctx context.Context, t *testing.T, args ...string) (string, int) {
	t.Helper()
	for _, id := range clusters {
		args = append(args, "--kubeconfig="+id+"="+atoll.Cluster(id).Kubeconfig())
	}
	return exits(ctx, t, args...)
}

// exits runs a command of atollctl, and returns its output and its exit code.
func exits(ctx context.Context, t *testing.T, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(binDir, "atollctl"), append(args, atoll.HubEndpoint().Flags()...)...)
	cmd.Env = []string{"HOME=" + filepath.Dir(binDir)} // no settings of who runs the suite
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return string(out) + string(exit.Stderr), exit.ExitCode()
	case err != nil:
		t.Fatalf("running atollctl: %v", err)
	}
	return string(out), 0
}
