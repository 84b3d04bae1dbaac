// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navix.sh/atoll/pkg/config"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/usage"
)

// usageError is an invalid command line.
type usageError = usage.Error

func usagef(format string, args ...any) error { return usage.Errorf(format, args...) }

// invalidFlag is the error of a flag's value.
func invalidFlag(flag, value, valid string) error { return usage.InvalidFlag(flag, value, valid) }

// flagOf maps fields to flags whose names differ.
var flagOf = map[string]string{"orderBy": "--sort-by", "labelSelector": "--selector", "metadataSelector": "--metadata"}

// namingFlags replaces the field in an error of a list with the name of its flag.
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

// enumFlag is a flag with few values.
type enumFlag struct {
	target *string
	valid  []string
}

func (e *enumFlag) Type() string   { return "string" }
func (e *enumFlag) String() string { return *e.target }

// Values are the valid ones, as package usage names them.
func (e *enumFlag) Values() []string { return e.valid }

func (e *enumFlag) Set(text string) error {
	i := slices.IndexFunc(e.valid, func(v string) bool { return strings.EqualFold(v, text) })
	if i < 0 {
		return errors.New("want one of: " + strings.Join(e.valid, ", "))
	}
	*e.target = e.valid[i]
	return nil
}

// bindEnum registers a flag that accepts only the given values, with completion. The default is the value of target.
func bindEnum(cmd *cobra.Command, flags *pflag.FlagSet, target *string, name, short, usage string, valid ...string) {
	flags.VarP(&enumFlag{target: target, valid: valid}, name, short, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(valid, cobra.ShellCompDirectiveNoFileComp))
}

// onlyForLists refuses filters on the command line beside an item. Those of the environment and of --config are for the lists of a command.
func onlyForLists(cmd *cobra.Command, item string, filters ...string) error {
	for _, name := range filters {
		if config.SourceOf(cmd.Flags().Lookup(name)) == config.FromLine {
			return usagef("--%s filters a list, want it without %q", name, item)
		}
	}
	return nil
}

// onlyTable refuses another --output on the command line. One of the environment or of --config is for the commands that have it.
func (a *app) onlyTable(cmd *cobra.Command, instead string) error {
	if a.output == "table" || config.SourceOf(cmd.Flags().Lookup("output")) != config.FromLine {
		return nil
	}
	return invalidFlag("output", a.output, "table; "+instead)
}

// envRef names an Env on the command line: NAMESPACE/NAME, or NAME with -n.
type envRef struct{ namespace string }

func (r *envRef) bind(flags *pflag.FlagSet) {
	flags.StringVarP(&r.namespace, "namespace", "n", "", "namespace of the Env; default that of NAMESPACE/NAME, else default")
}

// bindAllNamespaces registers kubectl's flag for lists that cover all namespaces unless one is given.
func bindAllNamespaces(cmd *cobra.Command) {
	cmd.Flags().BoolP("all-namespaces", "A", false, "all namespaces, as without --namespace")
	cmd.MarkFlagsMutuallyExclusive("all-namespaces", "namespace")
}

// resolve returns the namespace and the name of an Env.
func (r *envRef) resolve(text string) (namespace, name string, err error) {
	namespace, name, both := strings.Cut(text, "/")
	if !both {
		namespace, name = cmp.Or(r.namespace, "default"), text
	}
	switch {
	case name == "" || namespace == "" || strings.Contains(name, "/"):
		return "", "", usagef("Env %q is not valid, want NAMESPACE/NAME, or NAME with -n NAMESPACE", text)
	case both && r.namespace != "" && r.namespace != namespace:
		return "", "", usagef("Env %q and --namespace %s name two namespaces", text, r.namespace)
	}
	return namespace, name, nil
}
