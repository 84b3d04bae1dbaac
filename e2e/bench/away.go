// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/pkg/heap"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/segment"
)

// longPatience bounds how long the reports of all workers may take.
const longPatience = 10 * time.Minute

// awayCommand makes this program simulate remote workers: in a process of its own, with a low priority.
const awayCommand = "workers"

// niceness of that process: it weighs a tenth of a default one.
const niceness = "10"

// away is the configuration of such a process.
type away struct {
	World    crowd.World
	Hub, PKI string
	Bare     bool `json:",omitempty"` // see crowd.Options
}

// order is what such a process is told, and the answer follows when it is done.
type order struct {
	Do doing
	// Interval between reports, and Envs that change in each, of doReport.
	Interval time.Duration `json:",omitempty"`
	Envs     int           `json:",omitempty"`
	// Clusters that doExpect awaits; 0: all.
	Clusters int `json:",omitempty"`
	// Every says which clusters doSever loses, one in so many.
	Every int `json:",omitempty"`
	// Sample has pairs of a cluster's number in the process and of an Env's, of doShow.
	Sample [][2]int `json:",omitempty"`
}

type doing string

const (
	doAttach  doing = "attach"  // start all workers at once; done when the hub has all their reports
	doReport  doing = "report"  // start to report
	doStop    doing = "stop"    // stop that
	doExpect  doing = "expect"  // the next stream of so many workers
	doAwait   doing = "await"   // done when the hub has the first report of each of these
	doSever   doing = "sever"   // lose some of the clusters
	doHeal    doing = "heal"    // let them return; done when all are back
	doUpgrade doing = "upgrade" // replace the workers one after the other; done when the last one's report counts
	doShow    doing = "show"    // tell what the clusters have
	doNothing doing = "nothing" // answer
)

// told is the answer.
type told struct {
	Error string `json:",omitempty"`
	// Reports since doReport, and Left, those skipped because a stream was lost.
	Reports, Left int64
	// In and Out are bytes, as the workers see it, since the process began.
	In, Out int64
	// Arrivals are the times until each awaited report counted.
	Arrivals []time.Duration `json:",omitempty"`
	// Holdings by cluster, and what was asked of them, by cluster, Env and member.
	Holdings map[string]crowd.Holding `json:",omitempty"`
	Members  map[string]figures       `json:",omitempty"`
}

// figures are the counts of a member.
type figures struct{ Idle, Ready, Running int32 }

// outskirts is such a process.
type outskirts struct {
	network
	crowd *crowd.Crowd
	count atomic.Int64
	stop  func() int64    // nil: nothing is reported
	done  <-chan struct{} // of what is expected
}

// playAway carries out the orders in its input, one after the other. It responds to each, and to its start.
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
	o := &outskirts{}
	o.crowd, err = crowd.Prepare(a.World, (&site{authority: authority}).credentials(a.World, a.Hub, func(i int, opts *crowd.Options) {
		opts.Open, opts.Bare = o.dialer(i), a.Bare
	}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.crowd.Stop()) }()
	responses, orders := json.NewEncoder(out), json.NewDecoder(in)
	for err = responses.Encode(told{}); err == nil; {
		var next order
		if err := orders.Decode(&next); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading an order: %w", err)
		}
		var answer told
		if err := o.obey(ctx, next, &answer); err != nil {
			answer.Error = err.Error()
		}
		answer.In, answer.Out = o.in.Load(), o.out.Load()
		err = responses.Encode(answer)
	}
	return err
}

func (o *outskirts) obey(ctx context.Context, next order, answer *told) error {
	all := o.crowd.World.Clusters
	switch next.Do {
	case doAttach:
		o.done = o.crowd.Expect(time.Now())
		o.crowd.Start()
		return o.await(ctx, answer)
	case doReport:
		o.count.Store(0)
		o.stop = o.crowd.Report(next.Interval, next.Envs, &o.count)
	case doStop:
		answer.Left, o.stop = o.stop(), nil
		answer.Reports = o.count.Load()
	case doExpect:
		o.done = o.crowd.ExpectSome(time.Now(), cmp.Or(next.Clusters, all))
	case doAwait:
		return o.await(ctx, answer)
	case doSever:
		lost := func(cluster int) bool { return cluster%next.Every == 0 }
		o.done = o.crowd.ExpectSome(time.Now(), (all+next.Every-1)/next.Every)
		o.sever(lost)
	case doHeal:
		o.crowd.Begin(time.Now())
		o.heal()
		return o.await(ctx, answer)
	case doUpgrade:
		return o.crowd.Upgrade(ctx)
	case doShow:
		o.show(next.Sample, answer)
	case doNothing:
	default:
		return fmt.Errorf("order %q is not valid", next.Do)
	}
	return nil
}

func (o *outskirts) await(ctx context.Context, answer *told) error {
	select {
	case <-o.done:
		answer.Arrivals = o.crowd.Arrivals()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(longPatience):
		return fmt.Errorf("the hub had %d of the awaited reports after %s", len(o.crowd.Arrivals()), longPatience)
	}
}

func (o *outskirts) show(sample [][2]int, answer *told) {
	answer.Holdings, answer.Members = map[string]crowd.Holding{}, map[string]figures{}
	for i, w := range o.crowd.Workers {
		answer.Holdings[o.crowd.World.ID(i)] = w.Holding()
	}
	for _, at := range sample {
		name := o.crowd.World.Env(at[0], at[1])
		for _, m := range o.crowd.Workers[at[0]].Env(segment.Key{Namespace: "default", Name: name}).GetMembers() {
			answer.Members[o.crowd.World.ID(at[0])+"/"+name+"/"+m.GetName()] = figures{m.GetIdle(), m.GetReadyIdle(), m.GetRunning()}
		}
	}
}

// others are the workers of such a process.
type others struct {
	world     crowd.World
	cmd       *exec.Cmd
	in        io.WriteCloser
	responses *json.Decoder
}

// sendAway starts the process, and returns when its workers could be started.
func sendAway(ctx context.Context, a away) (*others, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	spec, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	o := &others{world: a.World, cmd: exec.CommandContext(ctx, "nice", "-n", niceness, self, awayCommand, string(spec))}
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
	if err := o.responses.Decode(&told{}); err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for the workers' process: %w", err), o.end())
	}
	return o, nil
}

// tell gives an order and returns its response once the process is done.
func (o *others) tell(next order) (answer told, err error) {
	if err = json.NewEncoder(o.in).Encode(next); err == nil {
		err = o.responses.Decode(&answer)
	}
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	if err != nil {
		return answer, fmt.Errorf("telling the workers' process to %s: %w", next.Do, err)
	}
	return answer, nil
}

func (o *others) end() error { return errors.Join(o.in.Close(), o.cmd.Wait()) }
