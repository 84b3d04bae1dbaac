// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"flag"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

var verbose = flag.Bool("sim.log", false, "show what hub and workers log, with the simulated time")

func logger(t *testing.T) logr.Logger {
	if !*verbose {
		return logr.Discard()
	}
	began := time.Now()
	return funcr.New(func(prefix, args string) {
		t.Logf("%9.3f %s %s", time.Since(began).Seconds(), prefix, args)
	}, funcr.Options{Verbosity: 1})
}
