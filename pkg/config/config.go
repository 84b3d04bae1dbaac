// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

const (
	// EnvPrefix is the prefix of a flag's environment variable: --data-dir is ATOLL_DATA_DIR.
	EnvPrefix = "ATOLL_"
	fileFlag  = "config"
	// LineOnly annotates a flag that can be set only on the command line, because another flag has its name in the environment and the file.
	// The annotation's value becomes what these contain for the other flag.
	LineOnly = "atoll-line-only"

	sourceKey = "atoll-source" // annotates a flag that the environment or the file has set
)

// Source is the source of a flag's value. A greater Source takes precedence.
type Source int

// The sources.
const (
	FromDefault Source = iota
	FromFile
	FromEnvironment
	FromLine
)

// SourceOf returns the source of a flag, after Load.
func SourceOf(f *pflag.Flag) Source {
	switch from := strings.Join(f.Annotations[sourceKey], ""); {
	case from == "environment":
		return FromEnvironment
	case from == "file":
		return FromFile
	case f.Changed:
		return FromLine
	default:
		return FromDefault
	}
}

func note(f *pflag.Flag, from string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[sourceKey] = []string{from}
}

// Bind adds --config to cmd, and fills cmd's flags from the environment and the file before it runs. cmd's own
// PersistentPreRunE runs afterwards.
func Bind(cmd *cobra.Command) {
	cmd.PersistentFlags().String(fileFlag, "", "YAML file with the same keys as the flags (environment: "+EnvName(fileFlag)+")")
	next := cmd.PersistentPreRunE
	cmd.PersistentPreRunE = func(c *cobra.Command, args []string) error {
		if err := Load(c.Flags(), os.LookupEnv, os.ReadFile); err != nil {
			return err
		}
		if next != nil {
			return next(c, args)
		}
		return nil
	}
}

// EnvName returns the environment variable of a flag.
func EnvName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Load sets the flags that the command line did not set.
func Load(flags *pflag.FlagSet, env func(string) (string, bool), readFile func(string) ([]byte, error)) error {
	var errs []error
	onCommandLine := map[string]bool{}
	flags.Visit(func(f *pflag.Flag) { onCommandLine[f.Name] = true })
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := env(EnvName(f.Name))
		if !ok {
			return
		}
		if _, alone := f.Annotations[LineOnly]; alone {
			f.Annotations[LineOnly] = []string{value}
			return
		}
		if onCommandLine[f.Name] {
			return
		}
		onCommandLine[f.Name] = true
		note(f, "environment")
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("environment %s: %w", EnvName(f.Name), err))
		}
	})
	if path := flags.Lookup(fileFlag); path != nil && path.Value.String() != "" {
		errs = append(errs, loadFile(flags, path.Value.String(), onCommandLine, readFile))
	}
	return errors.Join(errs...)
}

func loadFile(flags *pflag.FlagSet, path string, taken map[string]bool, readFile func(string) ([]byte, error)) error {
	data, err := readFile(path)
	if err != nil {
		return fmt.Errorf("reading --%s: %w", fileFlag, err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(data, &values); err != nil {
		return fmt.Errorf("reading --%s %s: %w", fileFlag, path, err)
	}
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	var errs []error
	for _, key := range keys {
		f := flags.Lookup(key)
		if f == nil || key == fileFlag || key == "help" {
			errs = append(errs, fmt.Errorf("%s: unknown key %q; valid: %s", path, key, strings.Join(names(flags), ", ")))
			continue
		}
		other, alone := f.Annotations[LineOnly]
		switch {
		case alone && len(other) == 0:
			var text string
			if text, err = single(values[key]); err == nil {
				f.Annotations[LineOnly] = []string{text}
			}
		case alone || taken[key]:
			continue
		default:
			note(f, "file")
			err = set(flags, key, values[key])
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: key %q: %w", path, key, err))
		}
	}
	return errors.Join(errs...)
}

func set(flags *pflag.FlagSet, name string, value any) error {
	list, takesList := flags.Lookup(name).Value.(pflag.SliceValue)
	if v, isList := value.([]any); isList && takesList {
		items := make([]string, 0, len(v))
		for _, item := range v {
			items = append(items, fmt.Sprint(item))
		}
		if err := list.Replace(items); err != nil {
			return fmt.Errorf("setting a list: %w", err)
		}
		flags.Lookup(name).Changed = true
		return nil
	}
	text, err := single(value)
	if err != nil {
		return err
	}
	return flags.Set(name, text)
}

// single returns the flag's text of a value that is not a list.
func single(value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", errors.New("has no value")
	case map[string]any:
		return "", errors.New("is a mapping, want a single value or a list")
	case []any:
		return "", errors.New("is a list, want a single value")
	case float64:
		// YAML was converted to JSON: an integer must not become 1e+06.
		if v == float64(int64(v)) {
			return fmt.Sprint(int64(v)), nil
		}
	}
	return fmt.Sprint(value), nil
}

func names(flags *pflag.FlagSet) []string {
	var out []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != fileFlag {
			out = append(out, f.Name)
		}
	})
	return out
}
