// SPDX-License-Identifier: Apache-2.0

package scalepolicy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/scalepolicy"
)

// TestSearchFindsTheGreatest: for any limit of admission, with few questions, and never above the admitted number.
func TestSearchFindsTheGreatest(t *testing.T) {
	for _, names := range []bool{false, true} {
		find := func(from, by, limit uint16) bool {
			low, high := int32(from), int32(from)+int32(by)
			most := min(max(int32(limit), low), high)
			asked := 0
			out, err := scalepolicy.Search(t.Context(), low, high, func(_ context.Context, target int32) (scalepolicy.AdmissionResult, error) {
				asked++
				switch {
				case target <= most:
					return scalepolicy.AdmissionResult{Admitted: target}, nil
				case names:
					return scalepolicy.AdmissionResult{Admitted: most, Message: "no more"}, nil
				}
				return scalepolicy.AdmissionResult{Admitted: low, Message: "no more"}, nil
			})
			whole := most == high
			return err == nil && out.From == low && out.To == most && out.Asked == asked && asked <= 18 &&
				(out.Result == v1alpha1.PoolScaleUpAttemptEnough) == whole && (out.Message == "") == whole
		}
		if err := quick.Check(find, &quick.Config{MaxCount: 2000}); err != nil {
			t.Errorf("parts named: %v: %v", names, err)
		}
	}
}

func TestSearchEnds(t *testing.T) {
	asked := 0
	invalid := func(context.Context, int32) (scalepolicy.AdmissionResult, error) {
		asked++
		return scalepolicy.AdmissionResult{Admitted: 3, Invalid: true, Message: "no such\nqueue"}, nil
	}
	out, err := scalepolicy.Search(t.Context(), 3, 100, invalid)
	if err != nil || asked != 1 || out.To != 3 || out.Result != v1alpha1.PoolScaleUpAttemptFailed || out.Message != "no such queue" {
		t.Errorf("an invalid spec is asked for once, and Failed: asked %d, %+v, %v", asked, out, err)
	}
	out, err = scalepolicy.Search(t.Context(), 3, 100, func(context.Context, int32) (scalepolicy.AdmissionResult, error) {
		return scalepolicy.AdmissionResult{}, errors.New(strings.Repeat("broken ", 100))
	})
	if err != nil || out.To != 3 || out.Result != v1alpha1.PoolScaleUpAttemptFailed || len(out.Message) > 300 {
		t.Errorf("a plugin that breaks is Failed, in a short line: %+v, %v", out, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = scalepolicy.Search(ctx, 3, 100, func(ctx context.Context, _ int32) (scalepolicy.AdmissionResult, error) {
		return scalepolicy.AdmissionResult{}, ctx.Err()
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("being told to end is no result: %v", err)
	}
}

func TestMessagesAreShort(t *testing.T) {
	for length, want := range map[int]int{255: 255, 256: 256, 257: 256} {
		out, err := scalepolicy.Search(t.Context(), 0, 1, func(context.Context, int32) (scalepolicy.AdmissionResult, error) {
			return scalepolicy.AdmissionResult{Message: strings.Repeat("a", length)}, nil
		})
		if err != nil || len(out.Message) != want {
			t.Errorf("%d bytes are told in %d, want %d (%v)", length, len(out.Message), want, err)
		}
	}
}

func TestRecord(t *testing.T) {
	if until := scalepolicy.SaturatedUntil(nil, &v1alpha1.PoolScaleUpPolicy{SaturationCooldownSeconds: 60}, noon); !until.IsZero() {
		t.Errorf("a pool that was never scaled is saturated until %s", until)
	}
	before := &v1alpha1.PoolAutoScalingStatus{ScaleUpErrorMessage: "old"}
	up := scalepolicy.Record(before, scalepolicy.Growth{From: 2, To: 3, Result: v1alpha1.PoolScaleUpAttemptEnough}, noon)
	if got := showStatus(up); got != "LastScaleUpTime=0s ago, LastScaleUpAttemptTime=0s ago, LastScaleUpAttemptResult=Enough" {
		t.Error(got)
	}
	none := scalepolicy.Record(nil, scalepolicy.Growth{From: 2, To: 2, Result: v1alpha1.PoolScaleUpAttemptInsufficient, Message: "quota"},
		noon)
	if got := showStatus(none); got != "LastScaleUpAttemptTime=0s ago, LastScaleUpAttemptResult=Insufficient, ScaleUpErrorMessage=quota" {
		t.Error(got)
	}
	if got := showStatus(scalepolicy.RecordDown(none, noon)); !strings.HasPrefix(got, "LastScaleDownTime=0s ago") {
		t.Error(got)
	}
	if before.LastScaleUpTime != nil || before.ScaleUpErrorMessage != "old" {
		t.Error("the status before was changed")
	}
}

// TestDecideKeepsLimits: for any group, no decision breaks a floor or a ceiling, and the members' order makes no difference.
func TestDecideKeepsLimits(t *testing.T) {
	for seed := range uint64(20000) {
		r := rand.New(rand.NewPCG(seed, 1))
		g := anyGroup(r)
		d := scalepolicy.Decide(g)
		if err := check(&g, d); err != nil {
			t.Fatalf("seed %d: %v\n%+v\n%s", seed, err, g, show(d))
		}
		shuffled := g
		shuffled.Members = append([]scalepolicy.Member(nil), g.Members...)
		r.Shuffle(len(shuffled.Members), func(i, j int) {
			shuffled.Members[i], shuffled.Members[j] = shuffled.Members[j], shuffled.Members[i]
		})
		again := scalepolicy.Decide(shuffled)
		byName := map[string]scalepolicy.MemberDecision{}
		for _, m := range again.Members {
			byName[m.Name] = m
		}
		for _, m := range d.Members {
			if !reflect.DeepEqual(m, byName[m.Name]) {
				t.Fatalf("seed %d: the order of members matters:\n%s\n%s", seed, show(d), show(again))
			}
		}
	}
}

func check(g *scalepolicy.Group, d scalepolicy.Decision) error {
	before, after, floor := g.Others, g.Others, g.Others
	marked := map[int32]bool{}
	for i, m := range d.Members {
		in := &g.Members[i]
		live := in.Pods.Live()
		busy := in.Pods.Running + in.Pods.Starting + in.Pods.Stopping
		before += max(m.From, live)
		after += max(m.To, live)
		floor += m.To
		switch {
		case (m.Status == nil) == g.Policy.Enabled:
			return fmt.Errorf("%s: status %v while enabled is %v", m.Name, m.Status, g.Policy.Enabled)
		case (in.Contested || in.Unsettled || !g.Policy.Enabled || d.Misconfigured != "") && (m.To != m.From || len(m.Mark) > 0):
			return fmt.Errorf("%s: is to be left alone", m.Name)
		case m.To < m.From && (m.To < busy || in.MinReplicas != nil && m.To < *in.MinReplicas):
			return fmt.Errorf("%s: shrinks below a floor", m.Name)
		case m.To < m.From && int(m.From-m.To) > len(in.IdlePods):
			return fmt.Errorf("%s: shrinks by more than is idle", m.Name)
		case m.To > max(m.From, live) && in.MaxReplicas != nil && m.To > *in.MaxReplicas:
			return fmt.Errorf("%s: grows above its ceiling", m.Name)
		case m.To > max(m.From, live) && !m.Probe:
			return fmt.Errorf("%s: grows unasked", m.Name)
		case (m.To > m.From) != (m.Direction == scalepolicy.Up), (m.To < m.From) != (m.Direction == scalepolicy.Down):
			return fmt.Errorf("%s: direction", m.Name)
		case m.Direction == scalepolicy.Down && len(m.Mark) > 0, m.Direction == scalepolicy.Up && len(m.Mark) > 0:
			return fmt.Errorf("%s: marks while it moves", m.Name)
		}
		if len(m.Mark) > 0 {
			marked[in.ScaleDownPriority] = true
		}
	}
	if after > before {
		for _, limit := range []*int32{g.Policy.MaxReplicas, g.Room} {
			if limit != nil && after > *limit {
				return fmt.Errorf("the group grows from %d to %d, above %d", before, after, *limit)
			}
		}
	}
	if len(marked) > 1 {
		return fmt.Errorf("a batch of several priorities")
	}
	for _, m := range d.Members {
		if m.Direction == scalepolicy.Down && g.Policy.MinReplicas != nil && floor < *g.Policy.MinReplicas {
			return fmt.Errorf("the group shrinks to %d, below %d", floor, *g.Policy.MinReplicas)
		}
	}
	return nil
}

// TestDecideShrinksByPriority: no Pod is marked while a member of a higher scaleDownPriority has Pods to remove, even if it waits.
func TestDecideShrinksByPriority(t *testing.T) {
	held := 0
	for seed := range uint64(20000) {
		r := rand.New(rand.NewPCG(seed, 2))
		g := anyGroup(r)
		g.Policy.MinReplicas = nil
		for i := range g.Members {
			m := &g.Members[i]
			m.Queue = 0
			m.Status.LastScaleDownTime = nil
			if r.IntN(2) == 0 {
				m.Status = scalepolicy.RecordDown(m.Status, noon.Add(-time.Duration(r.IntN(60))*time.Second))
			}
			for j := range m.IdlePods {
				m.IdlePods[j].Marked = false
			}
		}
		d := scalepolicy.Decide(g)
		giving, marking := int32(-1), int32(-1)
		for i, m := range d.Members {
			in := &g.Members[i]
			if mayGive(&g, in, &m) {
				giving = max(giving, in.ScaleDownPriority)
			}
			if len(m.Mark) > 0 {
				marking = in.ScaleDownPriority
			}
		}
		if giving > marking && marking >= 0 {
			t.Fatalf("seed %d: priority %d shrinks before %d:\n%s", seed, marking, giving, show(d))
		}
		if giving < 0 || marking >= 0 || d.Misconfigured != "" || !g.Policy.Enabled {
			continue
		}
		held++
		g.Now = g.Now.Add(time.Minute)
		after := scalepolicy.Decide(g)
		if !slices.ContainsFunc(after.Members, func(m scalepolicy.MemberDecision) bool {
			return len(m.Mark) > 0 || m.Direction != scalepolicy.None
		}) {
			t.Fatalf("seed %d: nothing shrinks a minute later:\n%s", seed, show(after))
		}
	}
	if held < 100 {
		t.Errorf("in %d groups only a claim waited", held)
	}
}

// mayGive reports a member that certainly has idle Pods to remove, now or after its stabilization.
func mayGive(g *scalepolicy.Group, in *scalepolicy.Member, m *scalepolicy.MemberDecision) bool {
	if in.Contested || in.Unsettled || m.Direction != scalepolicy.None || in.Queue > 0 || in.Pods.ReadyIdle == 0 {
		return false
	}
	floor := in.Pods.Running + in.Pods.Starting + in.Pods.Stopping
	if in.MinReplicas != nil {
		floor = max(floor, *in.MinReplicas)
	}
	// If creates are recent, one ready Pod stays. It need not be ripe.
	kept := g.Policy.ScaleUpPolicy.IdleThresholdSeconds == 0 || noon.Sub(in.LastCreate) > 300*time.Second
	ripe := false
	for _, pod := range in.IdlePods {
		old := pod.IdleFor >= 300*time.Second
		ripe = ripe || old && !pod.Marked
		kept = kept || pod.Ready && !old
	}
	return ripe && kept && m.To > floor
}

func anyGroup(r *rand.Rand) scalepolicy.Group {
	maybe := func(n int32) *int32 {
		if r.IntN(2) == 0 {
			return nil
		}
		v := r.Int32N(n)
		return &v
	}
	ago := func() time.Time { return noon.Add(-time.Duration(r.IntN(400)-5) * time.Second) }
	g := scalepolicy.Group{ClusterID: "here", Policy: policy(), Now: noon, Room: maybe(40), Others: r.Int32N(2) * r.Int32N(12)}
	g.Policy.Enabled = r.IntN(10) > 0
	g.Policy.MinReplicas, g.Policy.MaxReplicas = maybe(20), maybe(40)
	g.Policy.ScaleUpPolicy.Mode = []v1alpha1.PoolScaleUpMode{
		v1alpha1.PoolScaleUpModeConservative, v1alpha1.PoolScaleUpModeDefault, v1alpha1.PoolScaleUpModeAggressive}[r.IntN(3)]
	g.Policy.ScaleUpPolicy.IdleThresholdSeconds = r.Int32N(3) * 30
	for i := range 1 + r.IntN(4) {
		m := scalepolicy.Member{
			Name: fmt.Sprintf("m%d", i), Replicas: r.Int32N(12), MinReplicas: maybe(8), MaxReplicas: maybe(16),
			ScaleUpPriority: r.Int32N(3), ScaleDownPriority: r.Int32N(3), Contested: r.IntN(8) == 0, Unsettled: r.IntN(8) == 0,
			Provisioning: r.Int32N(3), Queue: r.Int32N(3) * r.Int32N(20),
			Pods:   scalepolicy.Counts{Running: r.Int32N(5), Starting: r.Int32N(2), Stopping: r.Int32N(2)},
			Status: &v1alpha1.PoolAutoScalingStatus{},
		}
		if r.IntN(2) == 0 {
			m.LastCreate = ago()
			zero := scalepolicy.RecordDown(nil, ago()).LastScaleDownTime
			m.Status = scalepolicy.Record(m.Status, scalepolicy.Growth{To: r.Int32N(2), Result: []v1alpha1.PoolScaleUpAttemptResult{
				v1alpha1.PoolScaleUpAttemptEnough, v1alpha1.PoolScaleUpAttemptInsufficient}[r.IntN(2)]}, ago())
			m.Status.LastScaleDownTime, m.Status.IdleZeroSince = zero, zero
		}
		for j := range r.IntN(6) {
			m.IdlePods = append(m.IdlePods, scalepolicy.IdlePod{
				Name: fmt.Sprintf("m%d-%d", i, j), IdleFor: time.Duration(r.IntN(600)) * time.Second, Ready: r.IntN(3) > 0,
				Marked: r.IntN(3) == 0, MarkedFor: time.Duration(r.IntN(20)) * time.Second,
			})
		}
		m.Stuck = r.Int32N(m.Provisioning + 1)
		m.Pods.Idle = int32(len(m.IdlePods))
		m.Pods.ReadyIdle = r.Int32N(m.Pods.Idle + 1)
		g.Members = append(g.Members, m)
	}
	return g
}
