// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"navix.sh/atoll/e2e/must"
)

func TestFlagsDescribeTheLog(t *testing.T) {
	for args, want := range map[string]string{
		"":                                   `"msg":"kept"`,
		"--log-format=text":                  "kept",
		"--log-level=loud":                   `--log-level "loud" is not valid`,
		"--log-format=xml":                   `--log-format "xml" is not valid`,
		"--log-format=text --log-level=info": "kept",
	} {
		var f Flags
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		f.Bind(flags)
		must.Succeed(t, flags.Parse(strings.Fields(args)))
		var out bytes.Buffer
		log, err := f.Logger(&out)
		if err != nil {
			out.WriteString(err.Error())
		} else {
			log.V(1).Info("dropped")
			log.Info("kept")
		}
		if got := out.String(); !strings.Contains(got, want) || strings.Contains(got, "dropped") {
			t.Errorf("%q gave %q, want %q", args, got, want)
		}
	}
}
