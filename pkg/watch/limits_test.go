// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"navix.sh/atoll/e2e/must"
)

func TestFlags(t *testing.T) {
	for line, want := range map[string]string{
		"": "", "--max-watches=1 --max-watches-per-team=2 --max-watches-per-key=3 --max-watch-copies=4 --cluster-max-watch-bytes=1048576": "",
		"--max-watches=-1":                "--max-watches: -1 is not valid, want 1 to 65536",
		"--max-watches-per-team=65537":    "--max-watches-per-team: 65537",
		"--max-watches-per-key=-5":        "--max-watches-per-key: -5",
		"--max-watch-copies=5000":         "--max-watch-copies: 5000",
		"--cluster-max-watch-bytes=65536": "--cluster-max-watch-bytes: 65536 is not valid, want 1048576 to 1073741824",
	} {
		var l Limits
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		l.Bind(flags)
		l.BindCallers(flags)
		must.Succeed(t, flags.Parse(strings.Fields(line)))
		got := ""
		if err := l.Validate(); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
		if line == "" && l.filled() != DefaultLimits() {
			t.Errorf("without flags: %+v", l)
		}
	}
}
