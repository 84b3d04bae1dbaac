// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"navix.sh/atoll/pkg/problem"
)

// exitCode is an error that ends the program with this code and without a message.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Exit codes of a command that fails, besides those of package problem. exec ends with its command's code.
const (
	exitUsage exitCode = 2
	exitEnded exitCode = 9 // the sandbox has ended, so it cannot be used

	// verify and doctor report what they found.
	exitFound exitCode = 1 // something is wrong
	exitBlind exitCode = 2 // nothing wrong was found, but not everything could be read
)

// exitCodeOf returns the exit code of a failed command.
func exitCodeOf(err error) exitCode {
	var code exitCode
	var over *endedError
	switch {
	case errors.As(err, &code):
		return code
	case isUsage(err):
		return exitUsage
	case errors.As(err, &over):
		return exitEnded
	default:
		return exitCode(problem.FromError(err).Reason.ExitCode())
	}
}

// isUsage reports whether the command line was invalid. cobra's errors have no types.
func isUsage(err error) bool {
	var wrong usageError
	if errors.As(err, &wrong) {
		return true
	}
	for _, text := range []string{"unknown command", "accepts ", "requires at least", "required flag", "at least one of the flags",
		"if any flags in the group"} {
		if strings.HasPrefix(err.Error(), text) {
			return true
		}
	}
	return false
}
