// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
