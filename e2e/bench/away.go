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

// awayCommand makes this program simulate remote workers: in a process of its own, with a low priority.
const awayCommand = "workers"

// niceness of that process: it weighs a tenth of a default one.
const niceness = "10"

// away is the configuration of such a process.
type away struct {
	World    crowd.World
	Hub, PKI string
}

// reported counts reports, and those skipped because a stream was lost.
type reported struct{ Reports, Left int64 }

// playAway is that process. Each line of its input starts or stops its reports. It responds to each line, and to its start,
// with the reports since the last start.
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

// others are the workers of such a process.
type others struct {
	cmd       *exec.Cmd
	in        io.WriteCloser
	responses *json.Decoder
}

// sendAway starts them, and returns when the hub has applied all their reports.
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

// toggle starts or stops the workers' reports.
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
