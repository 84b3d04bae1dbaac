// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/pkg/link/pki"
)

// awayCommand has this program play workers that have machines of their own: in a process of its own, which gets the
// processors when nobody else wants them.
const awayCommand = "workers"

// niceness of that process: it weighs a tenth of one that is not nice.
const niceness = "10"

// away is what such a process plays.
type away struct {
	World    crowd.World
	Hub, PKI string
	Interval time.Duration
	Changes  int // Envs in a report
}

// The process is told "report" and "rest" on its input, and ends with it. It answers each, and its start, with a line.
const (
	sayReport = "report"
	sayRest   = "rest"
)

// reported is what it answers to rest.
type reported struct {
	Reports, Left int64
}

// play is that process.
func (a away) play(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	authority, err := pki.Open(a.PKI)
	if err != nil {
		return err
	}
	s := &site{authority: authority}
	c, err := crowd.Gather(ctx, a.World, func(cluster int) (crowd.Options, error) {
		credentials, err := s.credentials(a.World.ID(cluster))
		return crowd.Options{Hub: a.Hub, Credentials: credentials}, err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	answers := json.NewEncoder(out)
	if err := answers.Encode(reported{}); err != nil {
		return err
	}
	var count atomic.Int64
	var stop func() int64
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var answer reported
		switch line := lines.Text(); {
		case line == sayReport && stop == nil:
			count.Store(0)
			stop = c.Report(a.Interval, a.Changes, &count)
		case line == sayRest && stop != nil:
			answer.Left, answer.Reports, stop = stop(), count.Load(), nil
		default:
			return fmt.Errorf("%q is not to be said now; say %s and %s in turns", line, sayReport, sayRest)
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return nil
}

// others are workers that are away.
type others struct {
	cmd    *exec.Cmd
	tell   io.WriteCloser
	answer *json.Decoder
}

// sendAway starts them, and returns when the hub has taken in what all report.
func (b *linkBench) sendAway(ctx context.Context, a away) (*others, error) {
	a.PKI = filepath.Join(b.dir, "pki")
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	spec, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "nice", "-n", niceness, self, awayCommand, string(spec))
	cmd.Stderr = os.Stderr
	o := &others{cmd: cmd}
	if o.tell, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	o.answer = json.NewDecoder(out)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting workers: %w", err)
	}
	if _, err := o.await(); err != nil {
		return nil, errors.Join(err, o.end())
	}
	return o, nil
}

func (o *others) await() (r reported, err error) {
	if err := o.answer.Decode(&r); err != nil {
		return r, fmt.Errorf("waiting for the workers' process: %w", err)
	}
	return r, nil
}

func (o *others) say(what string) (reported, error) {
	if _, err := io.Copy(o.tell, strings.NewReader(what+"\n")); err != nil {
		return reported{}, fmt.Errorf("telling the workers to %s: %w", what, err)
	}
	return o.await()
}

func (o *others) end() error {
	return errors.Join(o.tell.Close(), o.cmd.Wait())
}
