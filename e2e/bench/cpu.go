// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/prometheus/procfs"
)

// cpu is processor time in seconds by program, since the processes began or between two readings.
type cpu struct {
	ours   map[string]float64 // this process and its descendants
	others map[string]float64 // all other processes, except the kernel's threads, which also work for ours
}

const (
	itself   = "the bench itself"
	stolen   = "other virtual machines"
	kthreadd = 2   // parent of the kernel's threads
	ticks    = 100 // a second, in /proc
	// mostOthers is the share of the machine that other processes may take before a part is spoiled.
	mostOthers = 0.1
)

func readCPU() (cpu, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return cpu{}, fmt.Errorf("listing processes: %w", err)
	}
	stats := make([]procfs.ProcStat, 0, len(all))
	for _, p := range all {
		if stat, err := p.Stat(); err == nil { // else it has ended
			stats = append(stats, stat)
		}
	}
	c := split(stats, os.Getpid())
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return cpu{}, fmt.Errorf("reading /proc: %w", err)
	}
	machine, err := fs.Stat()
	if err != nil {
		return cpu{}, fmt.Errorf("reading /proc/stat: %w", err)
	}
	c.others[stolen] = machine.CPUTotal.Steal
	return c, nil
}

// split separates self's descendants from other processes. The time of ended children counts for their parents.
func split(stats []procfs.ProcStat, self int) cpu {
	parents := map[int]int{}
	for _, s := range stats {
		parents[s.PID] = s.PPID
	}
	c := cpu{ours: map[string]float64{}, others: map[string]float64{}}
	for _, s := range stats {
		took := s.CPUTime() + float64(s.CUTime+s.CSTime)/ticks
		pid := s.PID
		for pid != self && parents[pid] != 0 {
			pid = parents[pid]
		}
		switch {
		case s.PID == self:
			c.ours[itself] += took
		case pid == self:
			c.ours[s.Comm] += took
		case s.PID != kthreadd && s.PPID != kthreadd:
			c.others[s.Comm] += took
		}
	}
	return c
}

// since is the time after an earlier reading. A program whose processes have ended counts for their parents.
func (c cpu) since(before cpu) cpu {
	difference := func(now, then map[string]float64) map[string]float64 {
		out := maps.Clone(now)
		for name, seconds := range then {
			out[name] -= seconds
		}
		return out
	}
	return cpu{ours: difference(c.ours, before.ours), others: difference(c.others, before.others)}
}

func sum(by map[string]float64) (total float64) {
	for _, v := range by {
		total += v
	}
	return total
}

// use records how much others took while a part ran, and whether that spoiled it.
func (o *partResult) use(taken cpu, within time.Duration, processors int) {
	o.OthersCPUs = round(max(0, sum(taken.others)/within.Seconds()))
	o.Spoiled = o.OthersCPUs > mostOthers*float64(processors)
	for _, name := range slices.Sorted(maps.Keys(taken.others)) {
		if taken.others[name] > max(0, taken.others[o.OthersMost]) {
			o.OthersMost = name
		}
	}
}
