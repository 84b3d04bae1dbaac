// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"navix.sh/atoll/e2e/stack"
)

var (
	rowsFlag = flag.String("rows", "^(strangers-bodies|unicode-names|planted-keys)$",
		"regular expression of the rows to run, by name or role/name")
	rotateFlag = flag.Int("rotate", -1, "run eight rows by this number instead, so that consecutive numbers reach all rows")
	fullFlag   = flag.Bool("full", false, "attacks at full size against the hub's default limits")
	rssFlag    = flag.Int64("rss", 256, "most resident memory of hub and workers, in MiB")
	floorFlag  = flag.Duration("floor", 10*time.Second,
		"honest p99 below which an attack slows no caller; by default one for a machine that runs other tests")
	hubsFlag = flag.Int("hubs", 1, "replicas of the hub; rows that attack their ports for each other need several")
	rateFlag = flag.Float64("rate", 20, "honest claims a second")
	niceFlag = flag.Int("nice", 5,
		"priority of the attacker's process; 19 starves it on a machine that runs other tests")
	outFlag = flag.String("out", "", "file for the results, as JSON")
)

// fed is the federation of all rows.
var fed *world

func TestMain(m *testing.M) {
	if os.Getenv(asAttacker) != "" {
		os.Exit(attackerMain())
	}
	flag.Parse()
	chosen, err := choose()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	stack.RunSuite("adversary", func(ctx context.Context, dir, logDir string) (code int, err error) {
		// The first run on a machine builds Kubernetes.
		upCtx, cancel := context.WithTimeout(ctx, 40*time.Minute)
		defer cancel()
		fed = newWorld(dir, logDir, chosen)
		defer func() { err = errors.Join(err, fed.down(ctx)) }()
		if err := fed.up(upCtx); err != nil {
			return 1, err
		}
		code = m.Run()
		fed.results.print(os.Stderr)
		return code, fed.results.write(*outFlag)
	})
}

// perRotation is how many rows a rotation runs.
const perRotation = 8

// choose returns the rows to run, in the table's order.
func choose() ([]row, error) {
	all := table()
	if *hubsFlag == 1 {
		all = slices.DeleteFunc(all, func(r row) bool { return r.replicas })
	}
	if n := *rotateFlag; n >= 0 {
		var out []row
		for i := range perRotation {
			out = append(out, all[(n*perRotation+i)%len(all)])
		}
		return out, nil
	}
	wanted, err := regexp.Compile(*rowsFlag)
	if err != nil {
		return nil, fmt.Errorf("-rows: %w", err)
	}
	var out []row
	for _, r := range all {
		if wanted.MatchString(r.name) || wanted.MatchString(string(r.role)+"/"+r.name) {
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("-rows: %q is the name of none of %d rows", *rowsFlag, len(all))
	}
	return out, nil
}

// TestAdversary runs the chosen rows (I14, I15).
func TestAdversary(t *testing.T) {
	for _, role := range roles {
		var own []row
		for _, r := range fed.chosen {
			if r.role == role {
				own = append(own, r)
			}
		}
		if len(own) == 0 {
			continue
		}
		t.Run(string(role), func(t *testing.T) {
			for _, r := range own {
				t.Run(r.name, func(t *testing.T) {
					if err := fed.run(t.Context(), r); err != nil {
						t.Error(err)
					}
				})
			}
			if err := fed.Verify(t.Context()); err != nil {
				t.Errorf("after the attacks: %v", err)
			}
		})
	}
}

// TestTable holds the table itself: at least 60 attacks, some by each role, names that are used once, and a rotation that
// reaches every row.
func TestTable(t *testing.T) {
	all, names, count := table(), map[string]bool{}, map[role]int{}
	for _, r := range all {
		if names[r.name] || r.attack == nil || len(r.told) == 0 {
			t.Errorf("row %s is there twice, or has no attack, or does not say what the attacker is told", r.name)
		}
		names[r.name] = true
		count[r.role]++
	}
	for _, role := range roles {
		if count[role] == 0 {
			t.Errorf("no row of role %s", role)
		}
	}
	if len(all) < leastRows {
		t.Errorf("%d rows, want at least %d", len(all), leastRows)
	}
	rotations := (len(all) + perRotation - 1) / perRotation
	for i := range rotations * perRotation {
		delete(names, all[i%len(all)].name)
	}
	if len(names) > 0 {
		t.Errorf("%d rotations leave out %v", rotations, names)
	}
}
