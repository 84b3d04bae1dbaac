// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navix.sh/atoll/e2e/must"
)

type settings struct {
	dir     string
	size    int
	wait    time.Duration
	servers []string
}

func load(t *testing.T, env map[string]string, file string, args ...string) (settings, error) {
	t.Helper()
	var s settings
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.StringVar(&s.dir, "data-dir", "default", "")
	flags.IntVar(&s.size, "size", 1, "")
	flags.DurationVar(&s.wait, "wait", time.Second, "")
	flags.StringSliceVar(&s.servers, "servers", nil, "")
	flags.String("config", "", "")
	must.Succeed(t, flags.Parse(args))
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	err := Load(flags, lookup, func(string) ([]byte, error) { return []byte(file), nil })
	return s, err
}

func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	file := "data-dir: file\nsize: 1000000\nwait: 3s\nservers: [a, b]\n"
	s, err := load(t, map[string]string{"ATOLL_DATA_DIR": "env", "ATOLL_WAIT": "2s"}, file, "--config=x", "--data-dir=flag")
	must.Succeed(t, err)
	if s.dir != "flag" || s.wait != 2*time.Second || s.size != 1000000 || strings.Join(s.servers, " ") != "a b" {
		t.Errorf("got %+v", s)
	}
	if s, err = load(t, nil, ""); err != nil || s.dir != "default" {
		t.Errorf("without any source: %+v, %v", s, err)
	}
}

func TestBadInputNamesKeyAndValid(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		file string
		want []string
	}{
		"unknown key":   {file: "data_dir: x", want: []string{`unknown key "data_dir"`, "data-dir", "servers"}},
		"twice":         {file: "size: 1\nsize: 2", want: []string{"size"}},
		"wrong type":    {file: "size: many", want: []string{`key "size"`, "many"}},
		"mapping":       {file: "size: {a: b}", want: []string{`key "size"`, "mapping"}},
		"list":          {file: "size: [1]", want: []string{`key "size"`, "list"}},
		"nothing":       {file: "size:", want: []string{`key "size"`, "no value"}},
		"not yaml":      {file: "\tx", want: []string{"--config"}},
		"environment":   {env: map[string]string{"ATOLL_SIZE": "x"}, want: []string{"ATOLL_SIZE", "x"}},
		"file in file":  {file: "config: other", want: []string{`unknown key "config"`}},
		"several wrong": {file: "a: 1\nb: 2", want: []string{`"a"`, `"b"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, tc.env, tc.file, "--config=x")
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
		})
	}
}

func TestBindKeepsThePreRun(t *testing.T) {
	t.Setenv("ATOLL_NAME", "from env")
	var name string
	ran := false
	cmd := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }}
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error { ran = name == "from env"; return nil }
	cmd.Flags().StringVar(&name, "name", "", "")
	cmd.SetArgs(nil)
	Bind(cmd)
	if err := cmd.Execute(); err != nil || !ran {
		t.Errorf("err %v, pre-run saw the environment: %v", err, ran)
	}
}

// Only the command line sets a flag that is annotated so. What the environment has for the other flag of its name, else the file, is kept.
func TestLineOnly(t *testing.T) {
	for name, tc := range map[string]struct {
		env        map[string]string
		file       string
		args       []string
		is, other  string
		wantsError bool
	}{
		"environment": {env: map[string]string{"ATOLL_CONTEXT": "prod"}, file: "context: stage", other: "prod"},
		"file":        {file: "context: stage", args: []string{"--context=kind"}, is: "kind", other: "stage"},
		"neither":     {args: []string{"--context=kind"}, is: "kind"},
		"a list":      {file: "context: [a, b]", wantsError: true},
	} {
		t.Run(name, func(t *testing.T) {
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			is := flags.String("context", "", "")
			flags.Lookup("context").Annotations = map[string][]string{LineOnly: nil}
			flags.String("config", "x", "")
			must.Succeed(t, flags.Parse(tc.args))
			err := Load(flags, func(name string) (string, bool) { v, ok := tc.env[name]; return v, ok },
				func(string) ([]byte, error) { return []byte(tc.file), nil })
			if (err != nil) != tc.wantsError {
				t.Errorf("%v, want an error: %t", err, tc.wantsError)
			}
			if other := strings.Join(flags.Lookup("context").Annotations[LineOnly], ","); *is != tc.is || other != tc.other {
				t.Errorf("it is %q and the other one %q, want %q and %q", *is, other, tc.is, tc.other)
			}
		})
	}
}
