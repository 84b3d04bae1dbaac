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
	"sync/atomic"

	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/pkg/heap"
	"navix.sh/atoll/pkg/link/pki"
)

// awayCommand has this program play workers that have machines of their own: in a process of its own, with a low priority.
const awayCommand = "workers"

// niceness of that process: it weighs a tenth of one that is not nice.
const niceness = "10"

// away is what such a process plays.
type away struct {
	World    crowd.World
	Hub, PKI string
}

// reported is how many reports there were, and how many were left out because a stream was lost.
type reported struct{ Reports, Left int64 }

// playAway is that process. Each line of its input has it begin to report, or stop. It responds to each, and to its start, with
// what was reported since it began.
func playAway(ctx context.Context, spec string, in io.Reader, out io.Writer) (err error) {
	var a away
	if err := json.Unmarshal([]byte(spec), &a); err != nil {
		return fmt.Errorf("reading what to play: %w", err)
	}
	heap.Relax()
	authority, err := pki.Open(a.PKI)
	if err != nil {
		return err
	}
	c, err := (&site{authority: authority}).gather(ctx, a.World, a.Hub, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	var count atomic.Int64
	var stop func() int64
	responses := json.NewEncoder(out)
	err = responses.Encode(reported{})
	for lines := bufio.NewScanner(in); err == nil && lines.Scan(); {
		var r reported
		if stop == nil {
			count.Store(0)
			stop = c.Report(reportInterval, reportedEnvs, &count)
		} else {
			r.Left, stop = stop(), nil
			r.Reports = count.Load()
		}
		err = responses.Encode(r)
	}
	return err
}

// others are workers that are away.
type others struct {
	cmd       *exec.Cmd
	in        io.WriteCloser
	responses *json.Decoder
}

// sendAway starts them, and returns when the hub has taken in what all report.
func sendAway(ctx context.Context, a away) (*others, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	spec, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	o := &others{cmd: exec.CommandContext(ctx, "nice", "-n", niceness, self, awayCommand, string(spec))}
	o.cmd.Stderr = os.Stderr
	if o.in, err = o.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	o.responses = json.NewDecoder(out)
	if err := o.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting workers: %w", err)
	}
	if err := o.responses.Decode(&reported{}); err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for the workers' process: %w", err), o.end())
	}
	return o, nil
}

// toggle has the workers begin to report, or stop.
func (o *others) toggle() (r reported, err error) {
	if _, err = io.WriteString(o.in, "\n"); err == nil {
		err = o.responses.Decode(&r)
	}
	if err != nil {
		return r, fmt.Errorf("telling the workers' process to report or to stop: %w", err)
	}
	return r, nil
}

func (o *others) end() error { return errors.Join(o.in.Close(), o.cmd.Wait()) }
