// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// Limits bound what watches can make a process hold. A zero field has its default.
type Limits struct {
	All, Team, Key int           // watches
	Topics         int           // copies
	Bytes          int           // of one cluster's sandboxes in all copies
	Patience       time.Duration // how long a caller may take for an event; set by --body-timeout
}

// DefaultLimits are the limits of a process without other settings.
func DefaultLimits() Limits {
	return Limits{All: 256, Team: 64, Key: 32, Topics: 64, Bytes: 64 << 20, Patience: 30 * time.Second}
}

func (l Limits) filled() Limits {
	d := DefaultLimits()
	return Limits{
		All: cmp.Or(l.All, d.All), Team: cmp.Or(l.Team, d.Team), Key: cmp.Or(l.Key, d.Key), Topics: cmp.Or(l.Topics, d.Topics),
		Bytes: cmp.Or(l.Bytes, d.Bytes), Patience: cmp.Or(l.Patience, d.Patience),
	}
}

// Bind adds the bounds of every server as flags.
func (l *Limits) Bind(flags *pflag.FlagSet) {
	d := DefaultLimits()
	flags.IntVar(&l.All, "max-watches", d.All, "how many watches of sandboxes there may be at one time; beyond that they get RATE_LIMITED")
	flags.IntVar(&l.Bytes, "cluster-max-watch-bytes", d.Bytes,
		"how many bytes the sandboxes of one cluster may take in the copies that watches share; a cluster over it is as one that is away")
}

// BindCallers adds the bounds of callers with API keys as flags.
func (l *Limits) BindCallers(flags *pflag.FlagSet) {
	d := DefaultLimits()
	flags.IntVar(&l.Team, "max-watches-per-team", d.Team, "how many of them one team may have")
	flags.IntVar(&l.Key, "max-watches-per-key", d.Key, "how many of them one API key may have")
	flags.IntVar(&l.Topics, "max-watch-copies", d.Topics,
		"how many teams, and namespaces of callers that may see no other, may be watched at one time; each has a copy of its sandboxes")
}

// Validate returns an error that names every bound out of range.
func (l Limits) Validate() error {
	l = l.filled()
	var errs []error
	for _, n := range []struct {
		flag            string
		value, min, max int
	}{
		{"max-watches", l.All, 1, 1 << 16}, {"max-watches-per-team", l.Team, 1, 1 << 16}, {"max-watches-per-key", l.Key, 1, 1 << 16},
		{"max-watch-copies", l.Topics, 1, 1 << 12}, {"cluster-max-watch-bytes", l.Bytes, 1 << 20, 1 << 30},
	} {
		if n.value < n.min || n.value > n.max {
			errs = append(errs, fmt.Errorf("--%s: %d is not valid, want %d to %d", n.flag, n.value, n.min, n.max))
		}
	}
	return errors.Join(errs...)
}
