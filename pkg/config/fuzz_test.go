// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// A file is accepted, or refused with its path in the error. An unknown key is always refused.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"data-dir: x\nsize: 1000000\nwait: 3s\nservers: [a, b]\n", "size: 1e99", "wait: {}", "servers: [a, {b: c}]", "servers: {a: b}", "size: ~",
		"unknown: 1", "config: y",
		"- a\n- b", "a: &a [*a]", "data-dir: [1,2]", "size: 0x10", "servers: [[a]]", "data-dir: \"\\u0000\"", "size: 9223372036854775808", "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		flags.String("data-dir", "default", "")
		flags.Int("size", 1, "")
		flags.Duration("wait", time.Second, "")
		flags.StringSlice("servers", nil, "")
		flags.Bool("loud", false, "")
		flags.String(fileFlag, "the-file", "")
		err := Load(flags, func(string) (string, bool) { return "", false }, func(string) ([]byte, error) { return data, nil })
		if err != nil {
			if !strings.Contains(err.Error(), "the-file") {
				t.Fatalf("the error does not say which file: %v", err)
			}
			return
		}
		var values map[string]any
		if err := yaml.Unmarshal(data, &values); err != nil {
			t.Fatalf("taken, and no YAML: %v", err)
		}
		for key := range values {
			if flags.Lookup(key) == nil || key == fileFlag {
				t.Fatalf("%q is no key, and was taken", key)
			}
			if !flags.Changed(key) {
				t.Fatalf("%q was taken and changed nothing", key)
			}
		}
	})
}
