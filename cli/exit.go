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

// The exit codes of a command that fails, as docs/sandboxes.md lists them. exec ends with its command's code.
const (
	exitOther      exitCode = 1
	exitUsage      exitCode = 2
	exitNotFound   exitCode = 3
	exitRefused    exitCode = 4 // a retry may succeed
	exitConflict   exitCode = 5
	exitUnknown    exitCode = 6 // the outcome is unknown: repeat the call with the same claim key
	exitNotAllowed exitCode = 7

	// verify and doctor report what they found.
	exitFound exitCode = 1 // something is wrong
	exitBlind exitCode = 2 // nothing wrong was found, but not everything could be read
)

// exitCodeOf returns the exit code of a failed command.
func exitCodeOf(err error) exitCode {
	switch p := problem.FromError(err); p.Reason {
	case problem.Invalid:
		return exitUsage
	case problem.NotFound:
		return exitNotFound
	case problem.QueueFull, problem.RateLimited, problem.NoCapacity, problem.Recovering, problem.Unavailable, problem.Deadline:
		return exitRefused
	case problem.ClaimKeyConflict:
		return exitConflict
	case problem.OutcomeUnknown:
		return exitUnknown
	case problem.Unauthenticated, problem.Forbidden:
		return exitNotAllowed
	default:
		if isUsage(err) {
			return exitUsage
		}
		return exitOther
	}
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
