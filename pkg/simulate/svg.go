// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// The dimensions of a picture, in pixels.
const (
	width, left, right = 960, 52, 16
	plotHeight         = 190
	queueHeight        = 46
	labelHeight        = 20
	stripHeight        = labelHeight + 22 // for the marks of decisions
	gap                = 14
	axisHeight         = 22
	headHeight         = 66
)

// mostSections is the maximum number of pools that each get a section of their own.
const mostSections = 6

// style is readable on white and on black; a picture follows the reader's setting.
const style = `
svg { --bg:#fff; --ink:#24292f; --faint:#8c959f; --grid:#d8dee4; --run:#2f81c7; --idle:#9bd0a4; --way:#e3c676;` +
	` --rep:#24292f; --queue:#cf4a3c; --bad:#cf4a3c; }
@media (prefers-color-scheme: dark) {
svg { --bg:#0d1117; --ink:#e6edf3; --faint:#8b949e; --grid:#30363d; --run:#3d8fd6; --idle:#3f7d4c; --way:#8f7434;` +
	` --rep:#e6edf3; --queue:#f0776a; --bad:#f0776a; }
}
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.title { font-size: 15px; font-weight: 600; } .small { font-size: 11px; fill: var(--faint); } ` +
	`.what { font-size: 11px; paint-order: stroke; stroke: var(--bg); stroke-width: 3; } .end { text-anchor: end; } ` +
	`.mid { text-anchor: middle; }
.run { fill: var(--run); } .idle { fill: var(--idle); } .way { fill: var(--way); } .queue { fill: var(--queue); }
.rep { fill: none; stroke: var(--rep); stroke-width: 1.4; } .limit { stroke: var(--faint); stroke-dasharray: 5 4; } ` +
	`.grid { stroke: var(--grid); }
.bad { fill: var(--bad); opacity: .12; } .up { fill: var(--rep); } .down { fill: none; stroke: var(--rep); } ` +
	`.no { stroke: var(--bad); stroke-width: 1.6; } .hand { fill: var(--queue); }
`

// WriteSVG draws a run: running, idle and starting Pods over time, replicas, queue and decisions. The tooltip of each mark is the reason.
// The same run gives the same bytes.
func (r *Run) WriteSVG(out io.Writer) error {
	p := &picture{run: r, end: time.Duration(len(r.Total(""))) * r.Step}
	p.end = max(p.end, r.Step)
	sections := []int{-1}
	if n := len(r.Pools); n > 1 && n <= mostSections {
		for i := range r.Pools {
			sections = append(sections, i)
		}
	}
	sectionHeight := stripHeight + plotHeight + gap + queueHeight + axisHeight + 2*gap
	height := headHeight + len(sections)*sectionHeight
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img"><title>%s</title><style>%s</style>`,
		width, height, escape(p.heading()), style)
	p.printf(`<rect width="%d" height="%d" style="fill:var(--bg)"/>`, width, height)
	p.text(left, 24, "title", p.heading())
	p.legend(44)
	for i, pool := range sections {
		p.section(headHeight+i*sectionHeight, pool)
	}
	p.printf("</svg>")
	_, err := io.WriteString(out, p.b.String())
	return err
}

type picture struct {
	run *Run
	end time.Duration
	b   strings.Builder
}

func (p *picture) printf(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

func (p *picture) text(x, y int, class, s string) {
	p.printf(`<text x="%d" y="%d" class="%s">%s</text>`, x, y, class, escape(s))
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder returns no error
	return b.String()
}

func (p *picture) heading() string {
	return fmt.Sprintf("%s: %d claims, seed %d", p.run.Plan.Name, p.run.Claims, p.run.Plan.Seed)
}

func (p *picture) legend(y int) {
	x := left
	item := func(shape, label string, wide int) {
		p.printf(`<g transform="translate(%d %d)">%s</g>`, x, y, shape)
		p.text(x+18, y+9, "", label)
		x += wide
	}
	box := func(class string) string { return `<rect width="12" height="10" class="` + class + `"/>` }
	item(box("run"), "running", 82)
	item(box("way"), "starting or reset", 132)
	item(box("idle"), "idle", 58)
	item(`<path d="M0 5H12" class="rep"/>`, "replicas", 82)
	item(`<path d="M0 5H12" class="limit"/>`, "floor, ceiling", 106)
	item(box("queue"), "claims that wait", 126)
	item(`<path d="M1 10L6 1L11 10Z" class="up"/>`, "grew", 58)
	item(`<path d="M1 1L6 10L11 1Z" class="down"/>`, "shrank", 70)
	item(`<path d="M2 1L10 9M10 1L2 9" class="no"/>`, "not admitted", 104)
	item(`<circle cx="6" cy="5" r="4" class="hand"/>`, "by hand", 60)
}

// x is a time's horizontal position.
func (p *picture) x(at time.Duration) float64 {
	return left + float64(width-left-right)*float64(at)/float64(p.end)
}

// scale is a vertical axis, upwards from a baseline.
type scale struct {
	base, height int
	most         int32
}

func (s scale) y(n int32) float64 {
	return float64(s.base) - float64(s.height)*float64(n)/float64(s.most)
}

// section draws all pools together, or one of them.
func (p *picture) section(top, pool int) {
	points, name := p.run.Total(""), "all pools"
	if pool >= 0 {
		points, name = p.run.Pools[pool].Points, p.run.Pools[pool].Cluster+"/"+p.run.Pools[pool].Name
	} else if len(p.run.Pools) == 1 {
		name = p.run.Pools[0].Cluster + "/" + p.run.Pools[0].Name
	}
	limits := p.limits(pool)
	pods, queue := scale{top + stripHeight + plotHeight, plotHeight, 1}, scale{top + stripHeight + plotHeight + gap + queueHeight, queueHeight,
		1}
	for _, at := range points {
		pods.most, queue.most = max(pods.most, at.Replicas, at.pods()), max(queue.most, at.Queue)
	}
	for _, limit := range limits {
		pods.most = max(pods.most, limit)
	}
	p.text(left, top+12, "", "Pods of "+name)
	p.axis(pods, 5)
	p.axis(queue, 2)
	p.text(left+4, queue.base-queue.height-3, "small", "queue")
	p.hours(queue.base)
	p.disturbances(top+stripHeight, queue.base)
	bottom := make([]int32, len(points))
	for _, layer := range []struct {
		class string
		of    func(Point) int32
	}{
		{"run", func(at Point) int32 { return at.Running }},
		{"way", func(at Point) int32 { return at.Starting }},
		{"idle", func(at Point) int32 { return at.Idle }},
	} {
		upper := make([]int32, len(points))
		for i := range points {
			upper[i] = bottom[i] + layer.of(points[i])
		}
		p.area(layer.class, pods, bottom, upper)
		bottom = upper
	}
	waiting := make([]int32, len(points))
	replicas := make([]int32, len(points))
	for i := range points {
		waiting[i], replicas[i] = points[i].Queue, points[i].Replicas
	}
	p.area("queue", queue, make([]int32, len(points)), waiting)
	p.printf(`<path class="rep" d="%s"/>`, p.steps(pods, replicas, "M"))
	for _, limit := range limits {
		p.printf(`<path class="limit" d="M%d %.1fH%d"/>`, left, pods.y(limit), width-right)
	}
	p.sayDisturbances(top + stripHeight)
	p.marks(top+labelHeight, pool)
}

// limits returns the floor and the ceiling of a section, if it has them.
func (p *picture) limits(pool int) (limits []int32) {
	add := func(limit *int32) {
		if limit != nil && *limit > 0 {
			limits = append(limits, *limit)
		}
	}
	switch {
	case pool >= 0:
		add(p.run.Pools[pool].Config.MinReplicas)
		add(p.run.Pools[pool].Config.MaxReplicas)
	case len(p.run.Plan.Env.Groups) == 1 && len(p.run.Plan.Env.clusters()) == 1:
		add(p.run.Plan.Env.Groups[0].MinReplicas)
		add(p.run.Plan.Env.Groups[0].MaxReplicas)
	}
	return limits
}

// steps returns a line that stays at a value until the next one.
func (p *picture) steps(s scale, values []int32, first string) string {
	var b strings.Builder
	for i, v := range values {
		if i == 0 {
			fmt.Fprintf(&b, "%s%.1f %.1f", first, p.x(0), s.y(v))
		} else if v != values[i-1] {
			fmt.Fprintf(&b, "H%.1fV%.1f", p.x(time.Duration(i)*p.run.Step), s.y(v))
		}
	}
	fmt.Fprintf(&b, "H%.1f", p.x(p.end))
	return b.String()
}

// area draws the area between two lines.
func (p *picture) area(class string, s scale, lower, upper []int32) {
	if slices.Equal(lower, upper) || len(upper) == 0 {
		return
	}
	var back strings.Builder
	for i, at := range slices.Backward(lower) {
		if i == len(lower)-1 || at != lower[i+1] {
			fmt.Fprintf(&back, "V%.1f", s.y(at))
		}
		if i == 0 || at != lower[i-1] {
			fmt.Fprintf(&back, "H%.1f", p.x(time.Duration(i)*p.run.Step))
		}
	}
	p.printf(`<path class="%s" d="%s%sZ"/>`, class, p.steps(s, upper, "M"), back.String())
}

func (p *picture) axis(s scale, ticks int32) {
	most, step := int64(s.most), int64(1) // a ceiling may be the highest int32
	for decade := int64(1); most/step > int64(ticks); decade *= 10 {
		for _, next := range []int64{2 * decade, 5 * decade, 10 * decade} {
			if most/step > int64(ticks) {
				step = next
			}
		}
	}
	for n := int64(0); n <= most; n += step {
		p.printf(`<path class="grid" d="M%d %.1fH%d"/>`, left, s.y(int32(n)), width-right)
		p.printf(`<text x="%d" y="%.1f" class="small end">%d</text>`, left-6, s.y(int32(n))+4, n)
	}
}

// hours draws the axis of time.
func (p *picture) hours(base int) {
	step := time.Minute
	for _, next := range []time.Duration{
		2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour,
		6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour,
	} {
		if p.end/step > 12 {
			step = next
		}
	}
	for at := time.Duration(0); at <= p.end; at += step {
		p.printf(`<path class="grid" d="M%.1f %dv4"/>`, p.x(at), base)
		p.printf(`<text x="%.1f" y="%d" class="small mid">%s</text>`, p.x(at), base+16, clock(at)[:len(clock(at))-3])
	}
}

func (p *picture) disturbances(top, bottom int) {
	for i := range p.run.Plan.Disturbances {
		d := &p.run.Plan.Disturbances[i]
		from, to := p.x(min(d.From, p.end)), p.x(min(max(d.From, d.To), p.end))
		p.printf(`<rect class="bad" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s</title></rect>`,
			from, top, max(2, to-from), bottom-top, escape(clock(d.From)+" "+d.String()))
	}
}

// sayDisturbances labels the disturbances, with adjacent ones on different lines.
func (p *picture) sayDisturbances(top int) {
	for i := range p.run.Plan.Disturbances {
		d := &p.run.Plan.Disturbances[i]
		x, class := p.x(min(d.From, p.end))+3, "what"
		if x > width*3/4 {
			x, class = x-6, "what end"
		}
		p.printf(`<text x="%.1f" y="%d" class="%s">%s</text>`, x, top+14+14*(i%3), class, escape(d.String()))
	}
}

// marks draws the decisions. Marks that would overlap become one mark with all their reasons.
func (p *picture) marks(top, pool int) {
	type mark struct {
		x     int
		class string
	}
	var order []mark
	texts := map[mark][]string{}
	for _, e := range p.run.Events {
		var class string
		switch {
		case e.Pool < 0 || pool >= 0 && e.Pool != pool:
			continue
		case e.Kind == Grew:
			class = "up"
		case e.Kind == Shrank:
			class = "down"
		case e.Kind == Probed && e.To < e.Asked:
			class = "no"
		case e.Kind == Edited:
			class = "hand"
		default:
			continue
		}
		m := mark{int(p.x(min(e.At, p.end))) / 4 * 4, class}
		if len(texts[m]) == 0 {
			order = append(order, m)
		}
		texts[m] = append(texts[m], clock(e.At)+" "+p.run.line(e))
	}
	for _, m := range order {
		lines := texts[m]
		if len(lines) > 8 {
			lines = append(lines[:8:8], fmt.Sprintf("and %d more", len(lines)-8))
		}
		shape := map[string]string{
			"up": `<path d="M-4 8L0 0L4 8Z" class="up"/>`, "down": `<path d="M-4 10L0 18L4 10Z" class="down"/>`,
			"no": `<path d="M-3 1L3 7M3 1L-3 7" class="no"/>`, "hand": `<circle cy="5" r="4" class="hand"/>`,
		}[m.class]
		p.printf(`<g transform="translate(%d %d)">%s<title>%s</title></g>`, m.x, top-4, shape, escape(strings.Join(lines, "\n")))
	}
}
