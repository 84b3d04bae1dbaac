// SPDX-License-Identifier: Apache-2.0

// Package usage reports command line errors to users, with what is valid.
//
// In: a cobra command with its subcommands. Out: errors that name the flag or argument, its value and what is valid, and exit code 2.
package usage

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navix.sh/atoll/pkg/plural"
	"navix.sh/atoll/pkg/problem"
)

// ExitCode is the exit code for an invalid command line.
const ExitCode = 2

// Error is an invalid command line.
type Error struct{ Err error }

func (e Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e Error) Unwrap() error { return e.Err }

// Errorf returns an Error.
func Errorf(format string, args ...any) error { return Error{fmt.Errorf(format, args...)} }

// InvalidFlag returns the error for an invalid value of a flag.
func InvalidFlag(flag, value, valid string) error {
	return Errorf("--%s: %q is not valid, want %s", flag, value, valid)
}

// Explain makes a program and its subcommands report what is valid when they are called with an invalid command line.
func Explain(root *cobra.Command) {
	root.SetFlagErrorFunc(explainFlag)
	explainArguments(root)
}

// Of converts a cobra error about a group of flags to an Error with a clearer text. It returns other errors unchanged.
func Of(err error) error {
	if err == nil {
		return nil
	}
	if text, ok := ExplainGroup(err.Error()); ok {
		return Error{errors.New(text)}
	}
	return err
}

// Code returns the exit code of an error.
func Code(err error) int {
	var usage Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		return ExitCode
	}
	return 1
}

// explainFlag replaces errors of pflag's parsers with errors that say what is valid.
func explainFlag(cmd *cobra.Command, err error) error {
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		flag := wrong.GetFlag()
		return InvalidFlag(flag.Name, wrong.GetValue(), validOf(flag.Value))
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) > 1 {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := problem.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			return Errorf("there is no flag --%s of %s; did you mean --%s?", unknown.GetSpecifiedName(), cmd.CommandPath(), near)
		}
	}
	return Error{err}
}

// explainArguments makes all commands report their usage when they get invalid arguments. It makes a command that only has subcommands fail
// when it is called alone: such a command used to print its help, which scripts took for success.
func explainArguments(cmd *cobra.Command) {
	if !cmd.HasParent() && !cmd.Runnable() {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		}
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	} else if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return Errorf("%s needs one of: %s", cmd.CommandPath(), strings.Join(namesBelow(cmd), ", "))
			}
			return unknownBelow(cmd, args[0])
		}
		cmd.Args = cobra.ArbitraryArgs
	} else if valid := cmd.Args; valid != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := valid(cmd, args); err != nil {
				if !cmd.HasSubCommands() || len(args) == 0 {
					return Errorf("%s; usage: %s", arity(cmd.Name(), err.Error()), cmd.UseLine())
				}
				names := namesBelow(cmd) // a typo such as "clusters drian east"
				if problem.Nearest(args[0], names) != "" || cobraArity.FindString(err.Error()) == "" {
					return unknownBelow(cmd, args[0])
				}
				return Errorf("%s; usage: %s; or with one of: %s", arity(cmd.Name(), err.Error()), cmd.UseLine(), strings.Join(names, ", "))
			}
			return nil
		}
	}
	for _, child := range cmd.Commands() {
		explainArguments(child)
	}
}

// namesBelow returns the names of the subcommands of a command.
func namesBelow(cmd *cobra.Command) (names []string) {
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			names = append(names, child.Name())
		}
	}
	return names
}

func unknownBelow(cmd *cobra.Command, given string) error {
	names := namesBelow(cmd)
	if near := problem.Nearest(given, names); near != "" {
		return Errorf("there is no %s %s; did you mean %s? There are: %s", cmd.CommandPath(), given, near, strings.Join(names, ", "))
	}
	return Errorf("there is no %s %s; there are: %s", cmd.CommandPath(), given, strings.Join(names, ", "))
}

// cobraArity matches the errors of cobra's checks of the number of arguments, which have no types.
var cobraArity = regexp.MustCompile(`^(?:requires|accepts)( at least| at most)? (\d+)(?: arg\(s\))?, (?:only )?received (\d+)$`)

// arity describes how many arguments a command requires and how many it got.
func arity(name, text string) string {
	m := cobraArity.FindStringSubmatch(text)
	if m == nil && strings.HasPrefix(text, "unknown command") {
		return name + " takes no arguments"
	}
	if m == nil {
		return text
	}
	want, _ := strconv.Atoi(m[2])
	given := m[3] + " were"
	if m[3] == "1" {
		given = "1 was"
	}
	return fmt.Sprintf("%s takes%s %s, and %s given", name, m[1], plural.Of(want, "argument"), given)
}

// ExplainGroup returns a clearer text for a cobra error about a group of flags.
func ExplainGroup(text string) (string, bool) {
	for _, rule := range []struct {
		form *regexp.Regexp
		say  string
	}{
		{regexp.MustCompile(`^at least one of the flags in the group \[(.*)\] is required$`), "one of %s is needed"},
		{regexp.MustCompile(`^if any flags in the group \[(.*)\] are set none of the others can be; .*$`), "only one of %s can be given"},
		{regexp.MustCompile(`^if any flags in the group \[(.*)\] are set they must all be set; .*$`), "%s are given together or not at all"},
		{regexp.MustCompile(`^required flag\(s\) (.*) not set$`), "missing: %s"},
	} {
		if m := rule.form.FindStringSubmatch(text); m != nil {
			names := strings.Fields(strings.NewReplacer(`"`, "", ",", " ").Replace(m[1]))
			return fmt.Sprintf(rule.say, "--"+strings.Join(names, ", --")), true
		}
	}
	return "", false
}

// unknownCommand returns an error with the command that is most similar to the wrong one, or that has that name in other tools.
func unknownCommand(root *cobra.Command, wrong string) error {
	var names []string
	for _, child := range root.Commands() {
		if !child.IsAvailableCommand() {
			continue
		}
		if slices.Contains(child.SuggestFor, wrong) {
			return Errorf("there is no %s %s; did you mean %s?", root.Name(), wrong, child.Name())
		}
		names = append(append(names, child.Name()), child.Aliases...)
	}
	if near := problem.Nearest(wrong, names); near != "" {
		return Errorf("there is no %s %s; did you mean %s?", root.Name(), wrong, near)
	}
	return Errorf("there is no %[1]s %[2]s; %[1]s --help lists what there is", root.Name(), wrong)
}

// validOf describes the values of a flag.
func validOf(value pflag.Value) string {
	if v, ok := value.(interface{ Values() []string }); ok {
		return "one of: " + strings.Join(v.Values(), ", ")
	}
	switch value.Type() {
	case "duration":
		return "a duration such as 90s or 10m"
	case "bool":
		return "true or false"
	case "int", "int32", "int64", "uint64":
		return "a whole number"
	case "float64":
		return "a number"
	case "stringToString":
		return "NAME=VALUE"
	default:
		return "a " + value.Type()
	}
}
