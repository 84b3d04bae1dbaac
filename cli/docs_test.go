// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
)

// documented finds commands: in a line of a block, or between backticks.
var documented = regexp.MustCompile("(?m)`atollctl ([^`]+)`|^[^`\n]*?(?:bin/)?atollctl ([a-z-][^`\n|)#>]*)")

// filledIn is what helm, or a shell, puts into a command.
var filledIn = regexp.MustCompile(`\{\{[^}]*\}\}|\$\(date [^)]*\)`)

// Every command in README, docs and the charts' notes exists, with these flags and this number of arguments.
func TestDocumentedCommands(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	must.Succeed(t, err)
	notes, err := filepath.Glob("../charts/*/templates/NOTES.txt")
	must.Succeed(t, err)
	found := 0
	for _, page := range slices.Concat(pages, notes, []string{"../README.md"}) {
		text, err := os.ReadFile(page)
		must.Succeed(t, err)
		for _, match := range documented.FindAllStringSubmatch(filledIn.ReplaceAllString(string(text), "x"), -1) {
			found++
			line := strings.TrimSpace(match[1] + match[2])
			if err := parse(strings.Fields(line), match[1] != ""); err != nil {
				t.Errorf("%s: atollctl %s: %v", page, line, err)
			}
		}
	}
	if found < 25 {
		t.Errorf("found %d commands, want at least 25", found)
	}
}

// parse runs the steps before a command's run. A command that is only named needs no arguments.
func parse(args []string, named bool) error {
	command, rest, err := newRoot().Find(args)
	if err != nil || named && len(rest) == 0 {
		return err
	}
	command.InitDefaultHelpFlag()
	if err := command.ParseFlags(rest); err != nil {
		return err
	}
	if err := command.ValidateFlagGroups(); err != nil && strings.Contains(err.Error(), "none of the others") {
		return err
	}
	if help, err := command.Flags().GetBool("help"); help || err != nil {
		return err
	}
	if words := command.Flags().Args(); command.HasSubCommands() && len(words) > 0 && strings.ToLower(words[0]) == words[0] &&
		!command.Runnable() {
		return fmt.Errorf("%s has no command %s", command.CommandPath(), words[0])
	}
	return command.ValidateArgs(command.Flags().Args())
}
