// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"navix.sh/atoll/e2e/must"
)

// TestRuns compares the text of some runs with testdata/runs, whose lines are
//
//	simulate scenario=NAME env=NAME duration=1h
func TestRuns(t *testing.T) {
	datadriven.RunTest(t, "testdata/runs", func(t *testing.T, d *datadriven.TestData) string {
		var name, env, length string
		d.ScanArgs(t, "scenario", &name)
		d.ScanArgs(t, "env", &env)
		d.ScanArgs(t, "duration", &length)
		scenario, err := FindScenario(name)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		set := settings(1)
		if set.Duration, err = time.ParseDuration(length); err != nil {
			d.Fatalf(t, "%v", err)
		}
		r := run(t, scenario.Plan(envs()[env], set))
		var b strings.Builder
		must.Succeed(t, r.WriteText(&b))
		b.WriteString("\n")
		must.Succeed(t, WriteTable(&b, []string{env}, []Summary{r.Summarize()}))
		return b.String()
	})
}
