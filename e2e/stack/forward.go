// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
)

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`)

// Forward starts a kubectl port-forward of a port, and returns where it listens. It ends with the command's context, and its caller waits
// for that.
func Forward(cmd *exec.Cmd) (address string, err error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", fmt.Errorf("forwarding a port: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("forwarding a port: %w", err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if at := forwarding.FindStringSubmatch(lines.Text()); at != nil {
			go func() { _, _ = io.Copy(io.Discard, out) }() // else it would wait for its reader
			return at[1], nil
		}
	}
	return "", errors.Join(errors.New("kubectl port-forward ended early"), cmd.Wait())
}
