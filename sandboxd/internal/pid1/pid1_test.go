// SPDX-License-Identifier: Apache-2.0

package pid1

import (
	"bufio"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"navix.sh/atoll/e2e/must"
)

// TestMain makes this binary a container's first process for the tests.
func TestMain(m *testing.M) {
	if command := os.Getenv("PID1_COMMAND"); command != "" {
		code, err := Run([]string{"sleep", "1000"}, []string{"sh", "-c", command})
		if err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func container(t *testing.T, command string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "PID1_COMMAND="+command)
	return cmd
}

func TestTheExitCodeIsTheCommands(t *testing.T) {
	for command, want := range map[string]int{"exit 7": 7, "kill -KILL $$": 137, "true": 0} {
		cmd := container(t, command)
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit code %d, want %d", command, got, want)
		}
	}
}

// A process that was not waited for stays in /proc.
func TestOrphansAreReaped(t *testing.T) {
	cmd := container(t, `orphan=$( (sleep 0.05 >/dev/null & echo $!) ); `+
		`for i in $(seq 100); do [ -e /proc/$orphan ] || exit 9; sleep 0.05; done`)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 9 {
		t.Errorf("the orphan is still there: %s, %v", out, err)
	}
}

func TestSignalsAreForwarded(t *testing.T) {
	cmd := container(t, `trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 0.05; done`)
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	lines := bufio.NewScanner(out)
	lines.Scan()
	must.Succeed(t, cmd.Process.Signal(syscall.SIGTERM))
	lines.Scan()
	got := lines.Text()
	_ = cmd.Wait()
	if got != "got" || cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("printed %q and exited with %d, want got and 5", got, cmd.ProcessState.ExitCode())
	}
}
