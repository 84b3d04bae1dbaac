// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"navix.sh/atoll/pkg/problem"
)

// exitCode ends the program without a message.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Exit codes of a command that fails, besides those of package problem. exec ends with its command's code.
const (
	exitOther exitCode = 1
	exitUsage exitCode = 2

	// verify and doctor report what they found.
	exitFound exitCode = 1 // something is wrong
	exitBlind exitCode = 2 // nothing wrong was found, but not everything could be read
)

// exitCodeOf returns the exit code of a failed command.
func exitCodeOf(err error) exitCode {
	if code := exitCode(problem.FromError(err).Reason.ExitCode()); code != exitOther || !isUsage(err) {
		return code
	}
	return exitUsage
}

// isUsage reports whether cobra or pflag refused the command line. Their errors have no types.
func isUsage(err error) bool {
	for _, text := range []string{"unknown command", "unknown flag", "unknown shorthand flag", "invalid argument", "flag needs an argument",
		"accepts ", "requires at least", "required flag"} {
		if strings.HasPrefix(err.Error(), text) {
			return true
		}
	}
	return false
}
