// SPDX-License-Identifier: Apache-2.0

package scalepolicy_test

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/scalepolicy"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// policy is an enabled group with the API server's defaults.
func policy() v1alpha1.EnvAutoscalingGroup {
	return v1alpha1.EnvAutoscalingGroup{
		Name: "default", Enabled: true,
		ScaleUpPolicy: v1alpha1.PoolScaleUpPolicy{
			Mode: v1alpha1.PoolScaleUpModeDefault, CooldownSeconds: 30, IdleThresholdSeconds: 30,
			IdleZeroQuietWindowSeconds: 300, SaturationCooldownSeconds: 60,
		},
		ScaleDownPolicy: v1alpha1.PoolScaleDownPolicy{IdleTimeoutSeconds: 300, StabilizationSeconds: 60, ProtectionWindowSeconds: 10},
	}
}

// TestDecide runs the cases of testdata: a file for each field of the policy, and for each gate.
func TestDecide(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			g, err := parse(d.Input)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			return show(scalepolicy.Decide(g))
		})
	})
}

func TestABatchIsBounded(t *testing.T) {
	g, err := parse("member a replicas=260 idle=" + strings.Repeat("900s,", 259) + "900s")
	must.Succeed(t, err)
	if got := len(scalepolicy.Decide(g).Members[0].Mark); got != 250 {
		t.Errorf("%d Pods are marked at once, want 250", got)
	}
}

// A sum that wraps around would be far below the group's floor.
func TestHugeReplicasRaiseNoMember(t *testing.T) {
	g, err := parse("group min=2 others=2147483647\nmember a replicas=1 idle=1s\nmember b replicas=5 idle=1s,1s,1s,1s,1s")
	must.Succeed(t, err)
	for i, m := range scalepolicy.Decide(g).Members {
		if want := g.Members[i].Replicas; m.To != want {
			t.Errorf("member %s is scaled to %d, want %d", g.Members[i].Name, m.To, want)
		}
	}
}

// parse reads lines of
//
//	group mode=Default max=10 …
//	member NAME replicas=2 running=1 idle=400s,10s/3s …     (idle: for how long each, and for how long it is marked; ! is not ready)
func parse(text string) (scalepolicy.Group, error) {
	g := scalepolicy.Group{ClusterID: "here", Policy: policy(), Now: noon}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var set func(key, value string) error
		switch words[0] {
		case "group":
			set, words = func(k, v string) error { return setGroup(&g, k, v) }, words[1:]
		case "member":
			g.Members = append(g.Members, scalepolicy.Member{Name: words[1], Generation: 7})
			m := &g.Members[len(g.Members)-1]
			set, words = func(k, v string) error { return setMember(m, k, v) }, words[2:]
		default:
			return g, fmt.Errorf("unknown line %q", line)
		}
		for _, word := range words {
			key, value, _ := strings.Cut(word, "=")
			if err := set(key, value); err != nil {
				return g, fmt.Errorf("%s: %w", word, err)
			}
		}
	}
	return g, nil
}

func setGroup(g *scalepolicy.Group, key, value string) error {
	up, down := &g.Policy.ScaleUpPolicy, &g.Policy.ScaleDownPolicy
	switch key {
	case "enabled":
		g.Policy.Enabled = value == "true"
		return nil
	case "mode":
		up.Mode = v1alpha1.PoolScaleUpMode(value)
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 32)
	v := int32(n)
	switch key {
	case "min":
		g.Policy.MinReplicas = &v
	case "max":
		g.Policy.MaxReplicas = &v
	case "others":
		g.Others = v
	case "room":
		g.Room = &v
	case "floor":
		g.Floor = &v
	case "cooldown":
		up.CooldownSeconds = v
	case "idleThreshold":
		up.IdleThresholdSeconds = v
	case "quiet":
		up.IdleZeroQuietWindowSeconds = v
	case "saturation":
		up.SaturationCooldownSeconds = v
	case "idleTimeout":
		down.IdleTimeoutSeconds = v
	case "stabilization":
		down.StabilizationSeconds = v
	case "window":
		down.ProtectionWindowSeconds = v
	default:
		return fmt.Errorf("unknown key")
	}
	return err
}

func setMember(m *scalepolicy.Member, key, value string) error {
	status := func() *v1alpha1.PoolAutoScalingStatus {
		if m.Status == nil {
			m.Status = &v1alpha1.PoolAutoScalingStatus{}
		}
		return m.Status
	}
	switch key {
	case "contested":
		m.Contested = true
		return nil
	case "unsettled":
		m.Unsettled = true
		return nil
	case "result":
		status().LastScaleUpAttemptResult = v1alpha1.PoolScaleUpAttemptResult(value)
		return nil
	case "message":
		status().ScaleUpErrorMessage = value
		return nil
	case "idle":
		return setIdle(m, value)
	case "lastUp", "lastDown", "zeroSince", "attempt", "create", "refused":
		since, message, _ := strings.Cut(value, ":") // of a refusal
		ago, err := time.ParseDuration(since)
		at := metav1.NewTime(noon.Add(-ago))
		switch key {
		case "lastUp":
			status().LastScaleUpTime = &at
		case "lastDown":
			status().LastScaleDownTime = &at
		case "zeroSince":
			status().IdleZeroSince = &at
		case "attempt":
			status().LastScaleUpAttemptTime = &at
		case "create":
			m.LastCreate = at.Time
		case "refused":
			m.Refused = &scalepolicy.Refusal{At: at.Time, Message: cmp.Or(message, "exceeded quota")}
		}
		return err
	}
	n, err := strconv.ParseInt(value, 10, 32)
	v := int32(n)
	switch key {
	case "replicas":
		m.Replicas = v
	case "min":
		m.MinReplicas = &v
	case "max":
		m.MaxReplicas = &v
	case "up":
		m.ScaleUpPriority = v
	case "down":
		m.ScaleDownPriority = v
	case "running":
		m.Pods.Running = v
	case "starting":
		m.Pods.Starting = v
	case "stopping":
		m.Pods.Stopping = v
	case "coming":
		m.Provisioning = v
	case "stuck":
		m.Stuck = v
	case "queue":
		m.Queue = v
	case "ready":
		m.Pods.ReadyIdle = v
	default:
		return fmt.Errorf("unknown key")
	}
	return err
}

// setIdle creates idle Pods.
func setIdle(m *scalepolicy.Member, value string) error {
	for i, text := range strings.Split(value, ",") {
		one, broken := strings.CutSuffix(text, "!")
		age, mark, marked := strings.Cut(one, "/")
		name := fmt.Sprintf("%s-%d", m.Name, i+1)
		pod := scalepolicy.IdlePod{Name: name, UID: types.UID("uid-" + name), Ready: !broken, Marked: marked}
		var err error
		if pod.IdleFor, err = time.ParseDuration(age); err != nil {
			return err
		}
		if marked {
			if pod.MarkedFor, err = time.ParseDuration(mark); err != nil {
				return err
			}
		}
		m.IdlePods = append(m.IdlePods, pod)
		if pod.Ready {
			m.Pods.ReadyIdle++
		}
	}
	m.Pods.Idle = int32(len(m.IdlePods))
	return nil
}

func show(d scalepolicy.Decision) string {
	var b strings.Builder
	for _, m := range d.Members {
		fmt.Fprintf(&b, "%s: ", m.Name)
		switch {
		case m.Direction != scalepolicy.None:
			fmt.Fprintf(&b, "%s %d to %d", m.Direction, m.From, m.To)
			if m.Probe {
				fmt.Fprintf(&b, ", asking from %d", m.Floor)
			}
		default:
			fmt.Fprintf(&b, "stays %d", m.To)
		}
		fmt.Fprintf(&b, ": %s: %s\n", m.Reason, m.Text)
		for _, pods := range []struct {
			verb string
			list []scalepolicy.IdlePod
		}{{"mark", m.Mark}, {"unmark", m.Unmark}} {
			if len(pods.list) > 0 {
				var names []string
				for _, pod := range pods.list {
					names = append(names, pod.Name)
				}
				fmt.Fprintf(&b, "  %s %s\n", pods.verb, strings.Join(names, " "))
			}
		}
		for _, s := range m.Stops {
			fmt.Fprintf(&b, "  stop %s: %s\n", s.Reason, s.Text)
		}
		fmt.Fprintf(&b, "  status %s\n", showStatus(m.Status))
		if m.CanGrow {
			fmt.Fprintf(&b, "  can grow\n")
		}
		if !m.SaturatedUntil.IsZero() {
			fmt.Fprintf(&b, "  saturated for %s\n", m.SaturatedUntil.Sub(noon))
		}
	}
	if d.Misconfigured != "" {
		fmt.Fprintf(&b, "misconfigured: %s\n", d.Misconfigured)
	}
	if d.Again > 0 {
		fmt.Fprintf(&b, "again in %s\n", d.Again)
	}
	return b.String()
}

func showStatus(s *v1alpha1.PoolAutoScalingStatus) string {
	if s == nil {
		return "nil"
	}
	var words []string
	v := reflect.ValueOf(*s)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch field := v.Field(i).Interface().(type) {
		case *metav1.Time:
			if field != nil {
				words = append(words, fmt.Sprintf("%s=%s ago", name, noon.Sub(field.Time)))
			}
		default:
			if !v.Field(i).IsZero() {
				words = append(words, fmt.Sprintf("%s=%v", name, field))
			}
		}
	}
	return strings.Join(words, ", ")
}
