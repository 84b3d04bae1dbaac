// SPDX-License-Identifier: Apache-2.0

package main

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

// usageError is a command line that cannot be carried out.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// invalidFlag is the error of a flag's value.
func invalidFlag(flag, value, valid string) error {
	return usagef("--%s: %q is not valid, want %s", flag, value, valid)
}

// explainFlag says what is valid instead of what pflag's parsers report.
func explainFlag(cmd *cobra.Command, err error) error {
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		flag := wrong.GetFlag()
		return invalidFlag(flag.Name, wrong.GetValue(), validOf(flag.Value))
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) > 1 {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := problem.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			return usagef("there is no flag --%s of %s; did you mean --%s?", unknown.GetSpecifiedName(), cmd.CommandPath(), near)
		}
	}
	return usageError{err}
}

// explainArguments has all commands say how they are called when they are called wrongly. A command that only has others below it is
// wrong by itself: it printed its help, and scripts took that for success.
func explainArguments(cmd *cobra.Command) {
	if !cmd.HasParent() {
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
				return usagef("%s needs one of: %s", cmd.CommandPath(), strings.Join(namesBelow(cmd), ", "))
			}
			return unknownBelow(cmd, args[0])
		}
		cmd.Args = cobra.ArbitraryArgs
	} else if valid := cmd.Args; valid != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := valid(cmd, args); err != nil {
				if !cmd.HasSubCommands() || len(args) == 0 {
					return usagef("%s; usage: %s", arity(cmd.Name(), err.Error()), cmd.UseLine())
				}
				names := namesBelow(cmd) // "clusters drian east" was meant as one of them
				if problem.Nearest(args[0], names) != "" || cobraArity.FindString(err.Error()) == "" {
					return unknownBelow(cmd, args[0])
				}
				return usagef("%s; usage: %s; or with one of: %s", arity(cmd.Name(), err.Error()), cmd.UseLine(), strings.Join(names, ", "))
			}
			return nil
		}
	}
	for _, child := range cmd.Commands() {
		explainArguments(child)
	}
}

// namesBelow are the commands of a command.
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
		return usagef("there is no %s %s; did you mean %s? There are: %s", cmd.CommandPath(), given, near, strings.Join(names, ", "))
	}
	return usagef("there is no %s %s; there are: %s", cmd.CommandPath(), given, strings.Join(names, ", "))
}

// cobraArity are the errors of cobra's checks of how many arguments there are, which have no types.
var cobraArity = regexp.MustCompile(`^(?:requires|accepts)( at least| at most)? (\d+)(?: arg\(s\))?, (?:only )?received (\d+)$`)

// arity says how many arguments a command takes and was given.
func arity(name, text string) string {
	m := cobraArity.FindStringSubmatch(text)
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

// explainGroup says what is wrong with flags that belong together; cobra names them as a group.
func explainGroup(text string) (string, bool) {
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

// unknownCommand names the command that is most like a wrong one, or that does what other tools call so.
func unknownCommand(root *cobra.Command, wrong string) error {
	var names []string
	for _, child := range root.Commands() {
		if !child.IsAvailableCommand() {
			continue
		}
		if slices.Contains(child.SuggestFor, wrong) {
			return usagef("there is no atollctl %s; did you mean %s?", wrong, child.Name())
		}
		names = append(append(names, child.Name()), child.Aliases...)
	}
	if near := problem.Nearest(wrong, names); near != "" {
		return usagef("there is no atollctl %s; did you mean %s?", wrong, near)
	}
	return usagef("there is no atollctl %s; atollctl --help lists what there is", wrong)
}

// flagOf has the flags of fields that are called otherwise.
var flagOf = map[string]string{"orderBy": "--sort-by", "labelSelector": "--selector", "metadataSelector": "--metadata"}

// namingFlags returns an error about a field of a list as one about its flag.
func namingFlags(err error) error {
	var p *problem.Error
	if !errors.As(err, &p) || p.Reason != problem.Invalid || len(p.Fields) != 1 {
		return err
	}
	flag, known := flagOf[p.Fields[0].Field]
	if !known {
		return err
	}
	return usagef("%s: %q is not valid, want %s", flag, p.Fields[0].Value, p.Fields[0].Valid)
}

// validOf describes the values of a flag.
func validOf(value pflag.Value) string {
	if v, ok := value.(*enumFlag); ok {
		return "one of: " + strings.Join(v.valid, ", ")
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

// enumFlag is a flag with few values.
type enumFlag struct {
	target *string
	valid  []string
}

func (e *enumFlag) Type() string   { return "string" }
func (e *enumFlag) String() string { return *e.target }

func (e *enumFlag) Set(text string) error {
	i := slices.IndexFunc(e.valid, func(v string) bool { return strings.EqualFold(v, text) })
	if i < 0 {
		return errors.New("want one of: " + strings.Join(e.valid, ", "))
	}
	*e.target = e.valid[i]
	return nil
}

// bindEnum adds a flag that has one of a few values, with its completion. The flag's default is the target's value.
func bindEnum(cmd *cobra.Command, flags *pflag.FlagSet, target *string, name, short, usage string, valid ...string) {
	flags.VarP(&enumFlag{target: target, valid: valid}, name, short, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(valid, cobra.ShellCompDirectiveNoFileComp))
}

// envRef names an Env on the command line: NAMESPACE/NAME, or NAME with -n.
type envRef struct{ namespace string }

func (r *envRef) bind(flags *pflag.FlagSet) {
	flags.StringVarP(&r.namespace, "namespace", "n", "", "namespace of the Env; default that of NAMESPACE/NAME, else default")
}

// resolve returns the names of an Env.
func (r *envRef) resolve(text string) (namespace, name string, err error) {
	namespace, name, both := strings.Cut(text, "/")
	if !both {
		namespace, name = r.namespace, text
		if namespace == "" {
			namespace = "default"
		}
	}
	switch {
	case name == "" || namespace == "" || strings.Contains(name, "/"):
		return "", "", usagef("Env %q is not valid, want NAMESPACE/NAME, or NAME with -n NAMESPACE", text)
	case both && r.namespace != "" && r.namespace != namespace:
		return "", "", usagef("Env %q and --namespace %s name two namespaces", text, r.namespace)
	}
	return namespace, name, nil
}
