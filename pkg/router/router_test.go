// SPDX-License-Identifier: Apache-2.0

package router

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"navix.sh/atoll/pkg/segment"
)

// scene is an Env described in lines "cluster/pool key=value …", with health and age by cluster.
type scene struct {
	health map[string]Health
	seen   map[string]time.Duration
	def    segment.Defaults // what every cluster's segment states
	lines  string
}

func (s scene) view(t *testing.T) *View {
	t.Helper()
	clusters := map[string]*Cluster{}
	var candidates []Candidate
	for line := range strings.Lines(s.lines) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		id, name, ok := strings.Cut(fields[0], "/")
		if !ok {
			t.Fatalf("bad line %q", line)
		}
		if clusters[id] == nil {
			clusters[id] = NewCluster(id)
			clusters[id].SetHealth(s.health[id])
			clusters[id].SetSeen(s.seen[id])
		}
		seg := segment.New(segment.Key{}).Describe("", 0, s.def).With(segment.Member{Name: name, State: segment.Active})
		c := Candidate{Cluster: clusters[id], Segment: seg, InFlight: new(atomic.Int32)}
		for _, f := range fields[1:] {
			set(t, &c, f)
		}
		candidates = append(candidates, c)
	}
	return NewView(candidates)
}

func set(t *testing.T, c *Candidate, field string) {
	t.Helper()
	name, value, _ := strings.Cut(field, "=")
	m, shape := c.Member(), c.Member().Shape.Get()
	defer func() { m.Shape = segment.Share(shape) }()
	number := func(to *int32) {
		if _, err := fmt.Sscan(value, to); err != nil {
			t.Fatalf("bad field %q", field)
		}
	}
	switch name {
	case "ready":
		number(&m.ReadyIdle)
	case "queue":
		number(&m.QueueCapacity)
	case "pending":
		number(&m.Pending)
	case "prio":
		number(&shape.Priority)
	case "x":
		number(&shape.Multiplier)
	case "type":
		shape.InstanceType = value
	case "group":
		shape.ScalingGroup = value
	case "grow":
		m.CanGrow = true
	case "inflight":
		var n int32
		number(&n)
		c.InFlight.Store(n)
	case "claiming":
		var n int32
		number(&n)
		m.SetClaiming(n)
	case "saturated":
		m.State = segment.Saturated
	case "missing":
		m.State = segment.Missing
	case "inconsistent":
		m.State = segment.Inconsistent
	case "unknown":
		m.State = segment.Unknown
	default:
		t.Fatalf("unknown field %q", field)
	}
}

func golden(e Explanation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", e.Reason)
	for i := range e.Candidates {
		c := &e.Candidates[i]
		tier := c.Tier.String()
		if tier == "" {
			tier = "-"
		}
		fmt.Fprintf(&b, "%d %s/%s %s %s %s: %s\n", c.Rank, c.Cluster.ID, c.Member().Name, tier, c.Reason, c.Age, c.Message())
	}
	return b.String()
}

func lines(s ...string) string { return strings.Join(s, "\n") + "\n" }

var policies = []struct {
	name  string
	scene scene
	req   Request
	want  string
}{
	{
		name: "tiers in order",
		scene: scene{lines: `
			east/queue queue=4
			east/grow  queue=4 grow
			east/satq  queue=4 saturated
			east/sati  ready=9 saturated
			east/idle  ready=1
			east/full  queue=4 pending=4`},
		want: lines(
			"BetterTier",
			"1 east/idle FreshIdle BetterTier 0s: 1 idle Pod free",
			"2 east/sati SaturatedIdle WorseTier 0s: 9 idle Pods free",
			"3 east/grow CanGrow WorseTier 0s: no idle Pod free, and 0 claims wait in a queue of 4",
			"4 east/queue CanQueue WorseTier 0s: no idle Pod free, and 0 claims wait in a queue of 4",
			"5 east/satq SaturatedQueue WorseTier 0s: no idle Pod free, and 0 claims wait in a queue of 4",
			"0 east/full CanQueue QueueFull 0s: no idle Pod free, and 4 claims wait in a queue of 4"),
	},
	{
		name: "a last choice comes after every fresh cluster, whatever it has",
		scene: scene{
			health: map[string]Health{"east": Silent, "north": NoReceipt, "west": Disconnected},
			seen:   map[string]time.Duration{"east": 40 * time.Second, "south": 59 * time.Second},
			lines: `
				east/a  ready=9
				north/a ready=8
				west/a  ready=1
				south/a queue=1 saturated`,
		},
		want: lines(
			"FresherCluster",
			"1 south/a SaturatedQueue FresherCluster 1s: no idle Pod free, and 0 claims wait in a queue of 1",
			"2 east/a FreshIdle ClusterSuspect 20s: 9 idle Pods free; nothing heard of the cluster for 20s",
			"3 north/a FreshIdle ClusterSuspect 1m0s: 8 idle Pods free; the cluster did not confirm a dispatch in time",
			"4 west/a FreshIdle ClusterSuspect 1m0s: 1 idle Pod free; the cluster is not connected"),
	},
	{
		name: "not eligible",
		scene: scene{
			health: map[string]Health{"gone": Unreachable, "twins": Quarantined},
			lines: `
				gone/a  ready=9
				twins/a ready=9
				east/a  ready=9 missing
				east/b  ready=9 inconsistent
				east/c  ready=9 unknown`,
		},
		want: lines(
			"ClusterUnreachable",
			"0 east/a - MemberMissing 1m0s: the pool does not exist",
			"0 east/b - MemberInconsistent 1m0s: the pool is not what the Env says",
			"0 east/c - MemberStateUnknown 1m0s: the pool's state is not known to this version",
			"0 gone/a FreshIdle ClusterUnreachable 1m0s: nothing heard of the cluster for 1m0s",
			"0 twins/a FreshIdle ClusterQuarantined 1m0s: two clusters claim this name"),
	},
	{
		name: "of the clusters that a request binds itself to, the reason counts",
		scene: scene{
			health: map[string]Health{"gone": Unreachable, "leaving": Draining},
			lines: `
				gone/a    ready=9
				leaving/a ready=9
				east/a    ready=9`,
		},
		req: Request{Clusters: []string{"leaving"}, RequireClusters: true},
		want: lines(
			"ClusterDraining",
			"0 east/a FreshIdle ClusterNotRequested 1m0s: the request binds itself to other clusters",
			"0 gone/a FreshIdle ClusterNotRequested 1m0s: the request binds itself to other clusters",
			"0 leaving/a FreshIdle ClusterDraining 1m0s: the cluster is being drained and gets no new claims"),
	},
	{
		name: "the caller's clusters come before priority and room",
		scene: scene{lines: `
			east/a ready=9
			north/a ready=1 prio=5
			west/a ready=2 prio=9`},
		req: Request{Clusters: []string{"west", "nowhere", "north"}},
		want: lines(
			"PreferredByCall",
			"1 west/a FreshIdle PreferredByCall 0s: 2 idle Pods free",
			"2 north/a FreshIdle LessPreferred 0s: 1 idle Pod free",
			"3 east/a FreshIdle LessPreferred 0s: 9 idle Pods free"),
	},
	{
		name: "the caller's clusters do not come before the tier",
		scene: scene{lines: `
			east/a ready=1
			west/a queue=4`},
		req: Request{Clusters: []string{"west"}},
		want: lines(
			"BetterTier",
			"1 east/a FreshIdle BetterTier 0s: 1 idle Pod free",
			"2 west/a CanQueue WorseTier 0s: no idle Pod free, and 0 claims wait in a queue of 4"),
	},
	{
		name: "required clusters bind",
		scene: scene{lines: `
			east/a ready=1
			west/a queue=4`},
		req: Request{Clusters: []string{"west"}, RequireClusters: true},
		want: lines(
			"OnlyCandidate",
			"1 west/a CanQueue OnlyCandidate 0s: no idle Pod free, and 0 claims wait in a queue of 4",
			"0 east/a FreshIdle ClusterNotRequested 0s: the request binds itself to other clusters"),
	},
	{
		name: "priority, then most free, then name",
		scene: scene{lines: `
			east/a ready=90 prio=1
			east/b ready=3
			north/b ready=3 prio=-1
			north/a ready=5 prio=-1
			east/c ready=3`},
		want: lines(
			"MostFree",
			"1 north/a FreshIdle MostFree 0s: 5 idle Pods free",
			"2 north/b FreshIdle LessFree 0s: 3 idle Pods free",
			"3 east/b FreshIdle HigherPriority 0s: 3 idle Pods free",
			"4 east/c FreshIdle HigherPriority 0s: 3 idle Pods free",
			"5 east/a FreshIdle HigherPriority 0s: 90 idle Pods free"),
	},
	{
		name: "the shorter queue, however many places are left in the longer one",
		scene: scene{lines: `
			east/a queue=8192 pending=1000
			west/a queue=100  pending=9 inflight=1
			west/b queue=9000 pending=10000`},
		want: lines(
			"MostFree",
			"1 west/a CanQueue MostFree 0s: no idle Pod free, and 10 claims wait in a queue of 100",
			"2 east/a CanQueue LessFree 0s: no idle Pod free, and 1000 claims wait in a queue of 8192",
			"0 west/b CanQueue QueueFull 0s: no idle Pod free, and 10000 claims wait in a queue of 9000"),
	},
	{
		name: "claims in flight are deducted, from idle Pods first and then from the queue",
		scene: scene{lines: `
			east/a ready=9 inflight=8
			east/b ready=9 inflight=12 queue=5 pending=1
			east/c ready=9 inflight=13 queue=5 pending=1
			west/a ready=2`},
		want: lines(
			"MostFree",
			"1 west/a FreshIdle MostFree 0s: 2 idle Pods free",
			"2 east/a FreshIdle LessFree 0s: 1 idle Pod free",
			"3 east/b CanQueue WorseTier 0s: no idle Pod free, and 4 claims wait in a queue of 5",
			"0 east/c CanQueue QueueFull 0s: no idle Pod free, and 1 claim waits in a queue of 5"),
	},
	{
		name: "of claims in flight, those that have a Pod are not deducted again",
		scene: scene{lines: `
			east/a ready=9 inflight=8 claiming=8
			east/b ready=3 inflight=4 claiming=2
			east/c ready=5 inflight=2 claiming=9
			east/d queue=5 inflight=4 claiming=3`},
		want: lines(
			"MostFree",
			"1 east/a FreshIdle MostFree 0s: 9 idle Pods free",
			"2 east/c FreshIdle LessFree 0s: 5 idle Pods free",
			"3 east/b FreshIdle LessFree 0s: 1 idle Pod free",
			"4 east/d CanQueue WorseTier 0s: no idle Pod free, and 1 claim waits in a queue of 5"),
	},
	{
		name: "a request that does not queue does not wait for growth either",
		scene: scene{lines: `
			east/a queue=4
			east/b queue=4 grow
			east/c queue=4 pending=4 saturated`},
		req: Request{NoQueue: true},
		want: lines(
			"NoIdlePod",
			"0 east/a CanQueue NoIdlePod 0s: no idle Pod free, and the request does not queue",
			"0 east/b CanGrow NoIdlePod 0s: no idle Pod free, and the request does not queue",
			"0 east/c SaturatedQueue NoIdlePod 0s: no idle Pod free, and the request does not queue"),
	},
	{
		name: "shape and group filter",
		scene: scene{lines: `
			east/a ready=1 type=cpu x=2 group=g
			east/b ready=1 type=cpu x=4 group=g
			east/c ready=1 type=gpu x=2 group=g
			east/d ready=1 x=2 group=g
			east/e ready=1 type=cpu x=2`},
		req: Request{InstanceType: "cpu", Multiplier: 2, ScalingGroup: "g"},
		want: lines(
			"OnlyCandidate",
			"1 east/a FreshIdle OnlyCandidate 0s: 1 idle Pod free",
			"0 east/b FreshIdle MultiplierMismatch 0s: multiplier is 4",
			`0 east/c FreshIdle InstanceTypeMismatch 0s: instance type is "gpu"`,
			`0 east/d FreshIdle InstanceTypeMismatch 0s: instance type is ""`,
			`0 east/e FreshIdle ScalingGroupMismatch 0s: scaling group is ""`),
	},
	{
		name: "the Env's default shape applies where a member has a type",
		scene: scene{
			def: segment.Defaults{InstanceType: "cpu", Multiplier: 2},
			lines: `
				east/a ready=4 type=cpu x=2
				east/b ready=3 type=cpu x=4
				east/c ready=2 type=gpu x=2
				east/d ready=1`,
		},
		want: lines(
			"MostFree",
			"1 east/a FreshIdle MostFree 0s: 4 idle Pods free",
			"2 east/d FreshIdle LessFree 0s: 1 idle Pod free",
			"0 east/b FreshIdle MultiplierMismatch 0s: multiplier is 4",
			`0 east/c FreshIdle InstanceTypeMismatch 0s: instance type is "gpu"`),
	},
	{
		name: "a requested type takes any multiplier unless it names one",
		scene: scene{
			def: segment.Defaults{InstanceType: "cpu", Multiplier: 2},
			lines: `
				east/a ready=8 type=gpu x=1
				east/b ready=1 type=gpu x=8`,
		},
		req: Request{InstanceType: "gpu"},
		want: lines(
			"MostFree",
			"1 east/a FreshIdle MostFree 0s: 8 idle Pods free",
			"2 east/b FreshIdle LessFree 0s: 1 idle Pod free"),
	},
	{
		name: "a type alone, where the Env has none",
		scene: scene{lines: `
			east/a ready=9 type=cpu
			east/b ready=1 type=gpu`},
		req: Request{InstanceType: "gpu"},
		want: lines(
			"OnlyCandidate",
			"1 east/b FreshIdle OnlyCandidate 0s: 1 idle Pod free",
			`0 east/a FreshIdle InstanceTypeMismatch 0s: instance type is "cpu"`),
	},
	{
		name: "a multiplier alone comes before the Env's",
		scene: scene{
			def: segment.Defaults{InstanceType: "cpu", Multiplier: 2},
			lines: `
				east/a ready=9 type=cpu x=2
				east/b ready=1 type=cpu x=4`,
		},
		req: Request{Multiplier: 4},
		want: lines(
			"OnlyCandidate",
			"1 east/b FreshIdle OnlyCandidate 0s: 1 idle Pod free",
			"0 east/a FreshIdle MultiplierMismatch 0s: multiplier is 2"),
	},
	{
		name: "the Env's multiplier says nothing without its type",
		scene: scene{
			def: segment.Defaults{Multiplier: 2},
			lines: `
				east/a ready=2 type=cpu x=4`,
		},
		want: lines(
			"OnlyCandidate",
			"1 east/a FreshIdle OnlyCandidate 0s: 2 idle Pods free"),
	},
	{
		name:  "no clusters to be bound to",
		scene: scene{lines: `east/a ready=1 group=g`},
		req:   Request{RequireClusters: true, ScalingGroup: "g"},
		want: lines(
			"OnlyCandidate",
			"1 east/a FreshIdle OnlyCandidate 0s: 1 idle Pod free"),
	},
	{
		name:  "the longest queue and the most claims in flight",
		scene: scene{lines: `east/a pending=2147483647 inflight=2147483647`},
		want: lines(
			"QueueFull",
			"0 east/a CanQueue QueueFull 0s: no idle Pod free, and 2147483647 claims wait in a queue of 0"),
	},
	{name: "no members", want: lines("NoMembers")},
}

func TestHealth(t *testing.T) {
	for h := Fresh; h <= Draining; h++ {
		last, eligible := h >= Silent && h <= Disconnected, h <= Disconnected
		if h.LastChoice() != last || h.Eligible() != eligible {
			t.Errorf("%s: last choice %t, eligible %t", h, h.LastChoice(), h.Eligible())
		}
	}
}

// TestNearEqual: a factor of 193/256 on the greater merit and none on the smaller one make them equal.
func TestNearEqual(t *testing.T) {
	for _, c := range []struct {
		a, b int32
		want bool
	}{{193, 256, true}, {256, 193, true}, {192, 256, false}, {256, 192, false}, {0, 1, false}, {7, 7, true}} {
		if got := nearEqual(c.a, c.b); got != c.want {
			t.Errorf("%d and %d: %t", c.a, c.b, got)
		}
	}
}

// TestReplace compares a partly changed view with a new one.
func TestReplace(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for range 2000 {
		was, next := randomScene(r).view(t), randomScene(r).view(t)
		if was.Len() == 0 || next.Len() == 0 {
			continue
		}
		at, end := r.IntN(was.Len()), 1+r.IntN(was.Len())
		var all, changed []Candidate
		for i := range was.Len() {
			c := was.Candidate(i)
			if i >= at && i < end {
				like := next.Candidate(r.IntN(next.Len())) // of a name that keeps its place
				m := *like.Member()
				m.Name = c.Member().Name
				if r.IntN(2) == 0 {
					m.Shape = c.Member().Shape
				}
				d := like.Segment.Defaults.Get()
				if r.IntN(2) == 0 {
					d = c.Segment.Defaults.Get()
				}
				c.Segment, c.Index = segment.New(segment.Key{}).Describe("", 0, d).With(m), 0
				changed = append(changed, c)
			}
			all = append(all, c)
		}
		got, want := was.Replace(at, changed), NewView(all)
		if !slices.Equal(got.hot, want.hot) || !slices.Equal(got.segments, want.segments) {
			t.Fatalf("replaced from %d:\n%+v\nmade anew:\n%+v", at, got, want)
		}
	}
}

// Two candidates fit into a cache line; because a pick reads all of them.
func TestTwoCandidatesFitIntoACacheLine(t *testing.T) {
	if size := unsafe.Sizeof(hot{}); size != 32 {
		t.Errorf("a candidate takes %d bytes", size)
	}
}

// TestAViewIsOnePlaceInMemory, up to eight candidates.
func TestAViewIsOnePlaceInMemory(t *testing.T) {
	for n := range 9 {
		view := scene{lines: strings.Repeat("east/a ready=1\n", n)}.view(t)
		var candidates []Candidate
		for i := range n {
			candidates = append(candidates, view.Candidate(i))
		}
		if allocs := testing.AllocsPerRun(10, func() { NewView(candidates) }); allocs != 1 {
			t.Errorf("%d candidates: %v allocations", n, allocs)
		}
	}
}

func TestPolicies(t *testing.T) {
	for _, c := range policies {
		t.Run(c.name, func(t *testing.T) {
			view := c.scene.view(t)
			now := time.Minute
			if c.scene.seen == nil && c.scene.health == nil {
				now = 0
			}
			e := Explain(&c.req, view, now)
			if got := golden(e); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
			for rnd := range uint64(50) {
				checkPick(t, &c.req, view, rnd*0x9E3779B97F4A7C15)
			}
		})
	}
}

// checkPick holds the pick against the explanation: it is the first candidate, or one near it for the same reason.
func checkPick(t *testing.T, req *Request, view *View, rnd uint64) Decision {
	t.Helper()
	e := Explain(req, view, 0)
	d := Pick(req, view, rnd)
	if len(e.Candidates) == 0 || e.Candidates[0].Rank == 0 {
		if d.OK() || d.Reason != e.Reason {
			t.Fatalf("picked %+v, explained as %s", d, e.Reason)
		}
		return d
	}
	if !d.OK() {
		t.Fatalf("nothing picked for %s, explained as\n%s", d.Reason, golden(e))
	}
	got, first := view.Candidate(d.Index), e.Candidates[0]
	if d.Reason != e.Reason {
		t.Fatalf("picked for %s, explained as\n%s", d.Reason, golden(e))
	}
	if d.Tier != first.Tier || d.LastChoice != first.Health.LastChoice() {
		t.Fatalf("picked in %s, last choice %v, explained as\n%s", d.Tier, d.LastChoice, golden(e))
	}
	if got == first.Candidate {
		return d
	}
	e.Chosen(got.Cluster.ID, got.Member().Name)
	if chosen := e.Candidates[0]; chosen.Candidate != got || chosen.Rank != 1 || chosen.key != first.key ||
		!nearEqual(chosen.merit, first.merit) {
		t.Fatalf("picked %s/%s, which has no business before\n%s", got.Cluster.ID, got.Member().Name, golden(e))
	}
	return d
}

func randomScene(r *rand.Rand) scene {
	s := scene{health: map[string]Health{}}
	if r.IntN(2) == 0 {
		s.def.InstanceType = "t1"
		s.def.Multiplier = int32(r.IntN(3))
	}
	var b strings.Builder
	for c := range 1 + r.IntN(4) {
		if r.IntN(4) == 0 {
			s.health[fmt.Sprint("c", c)] = Health(r.IntN(int(Quarantined) + 1))
		}
		for m := range r.IntN(5) {
			fmt.Fprintf(&b, "c%d/m%d ready=%d inflight=%d claiming=%d queue=%d pending=%d prio=%d x=%d", c, m, r.IntN(4)*r.IntN(9), r.IntN(4),
				r.IntN(3), r.IntN(6), r.IntN(6), r.IntN(3)-1, r.IntN(3))
			for _, f := range []string{"grow", "saturated", "missing", "type=t1", "type=t2", "group=g"} {
				if r.IntN(4) == 0 {
					b.WriteString(" " + f)
				}
			}
			b.WriteString("\n")
		}
	}
	s.lines = b.String()
	return s
}

func randomRequest(r *rand.Rand) Request {
	req := Request{NoQueue: r.IntN(4) == 0}
	if r.IntN(3) == 0 {
		req.InstanceType = fmt.Sprint("t", 1+r.IntN(2))
	}
	if r.IntN(4) == 0 {
		req.Multiplier = int32(r.IntN(3))
	}
	if r.IntN(4) == 0 {
		req.ScalingGroup = "g"
	}
	for range r.IntN(3) {
		req.Clusters = append(req.Clusters, fmt.Sprint("c", r.IntN(5)))
	}
	req.RequireClusters = r.IntN(4) == 0
	for range r.IntN(3) {
		req.Exclude(fmt.Sprint("c", r.IntN(4)), fmt.Sprint("m", r.IntN(4)))
	}
	for range r.IntN(2) {
		req.Barred = append(req.Barred, fmt.Sprint("c", r.IntN(4)))
	}
	return req
}

func TestPickTellsTheStoryOfExplain(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 5000 {
		view, req := randomScene(r).view(t), randomRequest(r)
		checkPick(t, &req, view, r.Uint64())
	}
}

func TestRetriesMoveOnUntilNothingIsLeft(t *testing.T) {
	view := scene{lines: `
		east/a ready=9
		east/b ready=8
		west/a ready=1`}.view(t)
	var req Request
	var order []string
	for range 3 {
		d := Pick(&req, view, 1)
		c := view.Candidate(d.Index)
		order = append(order, c.Cluster.ID+"/"+c.Member().Name)
		req.Exclude(c.Cluster.ID, c.Member().Name)
	}
	if order[2] != "west/a" {
		t.Errorf("tried %v, want west/a last", order)
	}
	if d := Pick(&req, view, 1); d.OK() || d.Reason != AlreadyRefused {
		t.Errorf("after all refused: %+v", d)
	}
	req = Request{}
	req.ExcludeCluster("east")
	if d := Pick(&req, view, 1); view.Candidate(d.Index).Cluster.ID != "west" || d.Reason != OnlyCandidate {
		t.Errorf("with east excluded: %+v", d)
	}
}

func TestExclusionsAreBounded(t *testing.T) {
	var req Request
	for last := range 1000 {
		req.Exclude("c", fmt.Sprint("m", last))
		for i := range min(last, MaxExcluded) {
			seg := segment.New(segment.Key{}).With(segment.Member{Name: fmt.Sprint("m", last-i)})
			c := Candidate{Cluster: NewCluster("c"), Segment: seg}
			if req.mismatch(c) != AlreadyRefused {
				t.Fatalf("the exclusion %d before number %d is forgotten", i, last)
			}
		}
	}
}

// TestRefusalsUnbarNoCluster: the bound of the refusals is none for the barred clusters.
func TestRefusalsUnbarNoCluster(t *testing.T) {
	var req Request
	var lines strings.Builder
	for i := range 2 * MaxExcluded {
		req.Barred = append(req.Barred, fmt.Sprint("c", i))
		fmt.Fprintf(&lines, "c%d/a ready=9\n", i)
	}
	lines.WriteString("east/a ready=1\n")
	view := scene{lines: lines.String()}.view(t)
	if d := Pick(&req, view, 1); !d.OK() || view.Candidate(d.Index).Cluster.ID != "east" {
		t.Errorf("with all others barred: %+v", d)
	}
	for i := range 2 * MaxExcluded {
		req.Exclude("east", fmt.Sprint("m", i))
	}
	req.ExcludeCluster("east")
	if d := Pick(&req, view, 1); d.OK() || d.Reason != AlreadyRefused {
		t.Errorf("after the refusals: %+v", d)
	}
}

// TestAHerdSpreads sends a thousand callers the same view with nothing deducted in between.
func TestAHerdSpreads(t *testing.T) {
	view := scene{lines: `
		east/a ready=100
		north/a ready=97
		south/a ready=90
		west/a ready=50`}.view(t)
	r := rand.New(rand.NewPCG(9, 10))
	hits := map[string]int{}
	for range 1000 {
		hits[view.Candidate(Pick(&Request{}, view, r.Uint64()).Index).Cluster.ID]++
	}
	for _, near := range []string{"east", "north", "south"} {
		if hits[near] < 100 {
			t.Errorf("%s got %d of 1000 claims: %v", near, hits[near], hits)
		}
	}
	if hits["west"] > 0 {
		t.Errorf("west is clearly emptier and got %d claims", hits["west"])
	}
}

// TestAHerdStandsInTheShortQueues is the same where all have to wait.
func TestAHerdStandsInTheShortQueues(t *testing.T) {
	view := scene{lines: `
		east/a  queue=8192
		north/a queue=100
		south/a queue=8192 pending=2
		west/a  queue=8192 pending=40`}.view(t)
	r := rand.New(rand.NewPCG(11, 12))
	hits := map[string]int{}
	for range 1000 {
		hits[view.Candidate(Pick(&Request{}, view, r.Uint64()).Index).Cluster.ID]++
	}
	if hits["east"] < 300 || hits["north"] < 300 || hits["south"]+hits["west"] > 0 {
		t.Errorf("claims went to %v, want half of them to each empty queue", hits)
	}
}

func TestPickAllocatesNothing(t *testing.T) {
	view := scene{def: segment.Defaults{InstanceType: "cpu"}, lines: `
		east/a ready=100 type=cpu
		north/a ready=97 type=cpu
		south/a ready=90 type=gpu
		west/a ready=50`}.view(t)
	plain, picky, hopeless := Request{}, Request{InstanceType: "cpu", Clusters: []string{"north"}}, Request{ScalingGroup: "none"}
	picky.Exclude("east", "a")
	var d Decision
	allocs := testing.AllocsPerRun(1000, func() {
		for _, req := range []*Request{&plain, &picky, &hopeless} {
			d = Pick(req, view, 42)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	if d.OK() {
		t.Errorf("the hopeless request went to %d", d.Index)
	}
}

func TestNilAndEmptyViews(t *testing.T) {
	for _, view := range []*View{nil, NewView(nil)} {
		if d := Pick(&Request{}, view, 0); d.OK() || d.Reason != NoMembers {
			t.Errorf("picked %+v", d)
		}
		if e := Explain(&Request{}, view, 0); e.Reason != NoMembers || len(e.Candidates) != 0 {
			t.Errorf("explained %+v", e)
		} else if p := e.Proto(time.Unix(0, 0), 16, nil); p.GetReason() != "NoMembers" || p.GetPool() != "" {
			t.Errorf("explained as %v", p)
		}
	}
}

// TestOwnPools is the worker's use: one cluster, no counters.
func TestOwnPools(t *testing.T) {
	own := NewCluster("east")
	seg := segment.New(segment.Key{}).With(
		segment.Member{Name: "a", State: segment.Active, QueueCapacity: 1}, segment.Member{Name: "b", State: segment.Active, ReadyIdle: 1},
	)
	view := NewView([]Candidate{{Cluster: own, Segment: seg}, {Cluster: own, Segment: seg, Index: 1}})
	d := Pick(&Request{}, view, 0)
	if c := view.Candidate(0); c.InFlight != nil {
		t.Errorf("a counter %p came from nowhere", c.InFlight)
	}
	if !d.OK() || view.Candidate(d.Index).Member().Name != "b" || d.Tier != FreshIdle {
		t.Errorf("picked %+v", d)
	}
}

func TestExplanationProto(t *testing.T) {
	view := scene{lines: `
		east/a ready=2 inflight=1 prio=3
		west/a ready=9 missing`}.view(t)
	e := Explain(&Request{}, view, 5*time.Second)
	p := e.Proto(time.Unix(100, 0), 16, nil)
	if p.GetClusterId() != "east" || p.GetPool() != "a" || p.GetReason() != "OnlyCandidate" || p.GetDecidedAt().GetSeconds() != 100 {
		t.Errorf("decision is %v", p)
	}
	first, second := p.GetCandidates()[0], p.GetCandidates()[1]
	if first.GetRank() != 1 || first.GetTier() != "FreshIdle" || first.GetInFlight() != 1 || first.GetReadyIdle() != 2 ||
		first.GetPriority() != 3 || first.GetAge().AsDuration() != 5*time.Second {
		t.Errorf("first candidate is %v", first)
	}
	if second.GetRank() != 0 || second.GetTier() != "" || second.GetReason() != "MemberMissing" {
		t.Errorf("second candidate is %v", second)
	}
	none := Explain(&Request{NoQueue: true, ScalingGroup: "x"}, view, 0)
	if p := none.Proto(time.Unix(0, 0), 16, nil); p.GetClusterId() != "" || p.GetReason() != "MemberMissing" {
		t.Errorf("decision without a candidate is %v", p)
	}
}
