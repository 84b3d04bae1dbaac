// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	textRows  = 48
	textWidth = 60
)

// WriteText draws a run in characters. A row stands for a period; it has a bar of the Pods and a line for each event.
//
//	#  running   .  idle   +  on its way   |  replicas   ?  a claim that waits
func (r *Run) WriteText(out io.Writer) error {
	b := &strings.Builder{}
	total := r.Total("")
	fmt.Fprintf(b, "%s, %s, seed %d\n", r.Plan.Name, r.Plan.Duration, r.Plan.Seed)
	per := max(1, (len(total)+textRows-1)/textRows)
	most := int32(1)
	for _, p := range total {
		most = max(most, p.Replicas, p.pods()+p.Queue)
	}
	scale := func(n int32) int { return int((int64(n)*textWidth + int64(most) - 1) / int64(most)) }
	fmt.Fprintf(b, "%8s %8s %5s %7s %5s  0%*d\n", "time", "replicas", "idle", "running", "queue", textWidth-1, most)
	for i := 0; i < len(total); i += per {
		last := min(i+per, len(total))
		row := total[last-1]
		for _, p := range total[i:last] {
			row.Queue = max(row.Queue, p.Queue)
		}
		fmt.Fprintf(b, "%8s %8d %5d %7d %5d  %s\n", clock(time.Duration(last)*r.Step), row.Replicas, row.Idle, row.Running, row.Queue,
			bar(row, scale))
	}
	b.WriteString("\nwhat happened\n")
	r.writeEvents(b)
	if r.Omitted > 0 {
		fmt.Fprintf(b, "and %d more\n", r.Omitted)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// writeEvents writes a line for each event. Repeated events share a line.
func (r *Run) writeEvents(b *strings.Builder) {
	last, times, until := "", 0, time.Duration(0)
	again := func() {
		if times > 0 {
			fmt.Fprintf(b, "         … %d times more until %s\n", times, clock(until))
		}
		times = 0
	}
	for _, e := range r.Events {
		line := r.line(e)
		switch line {
		case "":
		case last:
			times, until = times+1, e.At
		default:
			again()
			fmt.Fprintf(b, "%s %s\n", clock(e.At), line)
			last = line
		}
	}
	again()
}

// bar draws the Pods of one row, followed by the waiting claims.
func bar(p Point, scale func(int32) int) string {
	cells := []byte(strings.Repeat(" ", textWidth+1))
	fill := func(from, to int32, with byte) {
		for i := scale(from); i < min(scale(to), textWidth); i++ {
			cells[i] = with
		}
	}
	fill(0, p.Running, '#')
	fill(p.Running, p.Running+p.Starting, '+')
	fill(p.Running+p.Starting, p.pods(), '.')
	fill(p.pods(), p.pods()+p.Queue, '?')
	cells[min(scale(p.Replicas), textWidth)] = '|'
	return strings.TrimRight(string(cells), " ")
}

// line describes an event; the summary has the gates that stopped a change.
func (r *Run) line(e Event) string {
	name := ""
	if e.Pool >= 0 {
		name = r.Pools[e.Pool].Name + " "
	}
	switch e.Kind {
	case Grew, Shrank, Edited:
		return fmt.Sprintf("%s%d → %d %s: %s", name, e.From, e.To, e.Reason, e.Text)
	case Probed:
		if e.To >= e.Asked {
			return ""
		}
		return fmt.Sprintf("%sasked for %d, got %d, %s: %s", name, e.Asked, e.To, e.Reason, e.Text)
	case Marked:
		return fmt.Sprintf("%smarks %d of its idle Pods for removal", name, e.From-e.To)
	case Kept:
		return name + e.Text
	case Disturb:
		return "*** " + e.Text
	case Restored:
		return "*** over: " + e.Text
	}
	return ""
}

// clock is a time of the run.
func clock(at time.Duration) string {
	s := int64(at / time.Second)
	return fmt.Sprintf("%02d:%02d:%02d", s/3600, s/60%60, s%60)
}
