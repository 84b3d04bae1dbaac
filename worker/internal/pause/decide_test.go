// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// requirements reads "request/limit"; "-" is none.
func requirements(text string) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	request, limit, _ := strings.Cut(text, "/")
	if request != "-" {
		r.Requests[corev1.ResourceCPU] = resource.MustParse(request)
	}
	if limit != "-" {
		r.Limits[corev1.ResourceCPU] = resource.MustParse(limit)
	}
	return r
}

func cpu(text string) CPU {
	r := requirements(text)
	return cpuOf(&r)
}

// podOf has one container, main, with this spec and, unless empty, this status.
func podOf(spec, status string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 3, Annotations: map[string]string{}}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: requirements(spec)}}
	pod.Status.ObservedGeneration = 3
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main"}}
	if status != "" {
		r := requirements(status)
		pod.Status.ContainerStatuses[0].Resources = &r
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

// intends sets the target, and what main had.
func intends(target Target, had string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		value, err := (&Intent{Target: target, Since: "2026-05-01T11:00:00Z", Containers: map[string]CPU{"main": cpu(had)}}).Encode()
		if err != nil {
			panic(err)
		}
		pod.Annotations[v1alpha1.SandboxPauseAnnotationKey] = value
	}
}

func says(kind corev1.PodConditionType, reason string, generation int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: "says the node", ObservedGeneration: generation,
		})
	}
}

func unseen(pod *corev1.Pod) { pod.Status.ObservedGeneration = 2 }

// The QoS class must not change, so requests that equal limits still do, and smaller ones stay smaller.
func TestFloor(t *testing.T) {
	for had, want := range map[string]string{
		"1/1": "10m/10m", "250m/500m": "1m/10m", "10m/20m": "1m/10m", "1m/500m": "1m/10m", "0/500m": "0/10m", "500m/-": "1m/-", "-/500m": "-/10m",
		"1500m/1500m": "10m/10m", "5m/5m": "5m/5m", "10m/10m": "10m/10m", "1m/5m": "1m/5m", "0/1m": "0/1m", "-/-": "-/-",
	} {
		got := cpu(had).floor()
		if !got.equal(cpu(want)) {
			t.Errorf("the floor of %s is %v, want %s", had, got, want)
		}
		if !got.floor().equal(got) {
			t.Errorf("the floor of the floor of %s is %v", had, got.floor())
		}
		before := cpu(had)
		if before.Request == nil || before.Limit == nil {
			continue
		}
		if was, is := before.Request.Cmp(*before.Limit), got.Request.Cmp(*got.Limit); was != is {
			t.Errorf("request and limit of %s compared as %d, and as %d at the floor", had, was, is)
		}
	}
}

func TestDecide(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	for name, tt := range map[string]struct {
		pod    *corev1.Pod
		target Target
		step   Step
		says   string // of a refusal, an intent or changes
	}{
		"begin": {podOf("1/2", "1/2"), Paused, Write,
			`{"target":"Paused","since":"2026-05-01T12:00:00Z","containers":{"main":{"request":"1","limit":"2"}}}`},
		"no limit":        {podOf("1/-", "1/-"), Paused, Write, `"containers":{"main":{"request":"1"}}`},
		"nothing to free": {podOf("-/-", "-/-"), Paused, Refuse, NothingToFree},
		"at the floor":    {podOf("10m/10m", "10m/10m"), Paused, Refuse, NothingToFree},
		"would restart": {podOf("1/1", "1/1", func(p *corev1.Pod) {
			p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU,
				RestartPolicy: corev1.RestartContainer}}
		}), Paused, Refuse, WouldRestart},
		"memory may restart": {podOf("1/1", "1/1", func(p *corev1.Pod) {
			p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory,
				RestartPolicy: corev1.RestartContainer}}
		}), Paused, Write, "main"},
		"liveness": {podOf("1/1", "1/1", func(p *corev1.Pod) {
			p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{}}}
		}), Paused, Refuse, LivenessProbe},
		"liveness of the kernel": {podOf("1/1", "1/1", func(p *corev1.Pod) {
			p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}}
		}), Paused, Write, "main"},
		"sidecars too": {podOf("1/1", "1/1", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "once", Resources: requirements("1/1")},
				{Name: "side", Resources: requirements("1/1"), RestartPolicy: &always}}
		}), Paused, Write, `"containers":{"main":{"request":"1","limit":"1"},"side":{"request":"1","limit":"1"}}`},
		"sidecar, beside one that has nothing to free": {podOf("10m/10m", "10m/10m", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "side", Resources: requirements("1/1"), RestartPolicy: &always}}
		}), Paused, Write, `"containers":{"side":{"request":"1","limit":"1"}}`},

		"resize":            {podOf("1/1", "1/1", intends(Paused, "1/1")), Paused, Resize, "/spec/containers/0 10m/10m"},
		"resized elsewhere": {podOf("5m/20m", "1/1", intends(Paused, "1/1")), Paused, Resize, "/spec/containers/0 10m/10m"},
		"kubelet at it":     {podOf("10m/10m", "1/1", intends(Paused, "1/1")), Paused, Rest, ""},
		"paused":            {podOf("10m/10m", "10m/10m", intends(Paused, "1/1")), Paused, Rest, ""},
		"infeasible": {podOf("10m/10m", "1/1", intends(Paused, "1/1"), says(corev1.PodResizePending, Infeasible, 3)), Paused, Refuse,
			"says the node"},
		"infeasible before": {podOf("10m/10m", "1/1", intends(Paused, "1/1"), says(corev1.PodResizePending, Infeasible, 2)), Paused, Rest, ""},
		"deferred":          {podOf("10m/10m", "1/1", intends(Paused, "1/1"), says(corev1.PodResizePending, Deferred, 3)), Paused, Rest, ""},
		"turn back": {podOf("10m/10m", "10m/10m", intends(Paused, "1/1")), Running, Write,
			`{"target":"Running","since":"2026-05-01T12:00:00Z","containers":{"main":{"request":"1","limit":"1"}}}`},
		"resize back":        {podOf("10m/10m", "10m/10m", intends(Running, "1/1")), Running, Resize, "/spec/containers/0 1/1"},
		"waiting":            {podOf("1/1", "10m/10m", intends(Running, "1/1")), Running, Rest, ""},
		"not seen yet":       {podOf("1/1", "1/1", intends(Running, "1/1"), unseen), Running, Rest, ""},
		"in progress":        {podOf("1/1", "1/1", intends(Running, "1/1"), says(corev1.PodResizeInProgress, "", 3)), Running, Rest, ""},
		"resume infeasible":  {podOf("1/1", "10m/10m", intends(Running, "1/1"), says(corev1.PodResizePending, Infeasible, 3)), Running, Rest, ""},
		"resumed":            {podOf("1/1", "1/1", intends(Running, "1/1")), Running, Clear, ""},
		"never resized":      {podOf("1/1", "", intends(Running, "1/1")), Running, Clear, ""},
		"nothing was paused": {podOf("1/1", "1/1"), Running, Rest, ""},
		"paused again":       {podOf("1/1", "10m/10m", intends(Running, "1/1")), Paused, Write, `"target":"Paused"`},
		"not readable": {podOf("1/1", "1/1", func(p *corev1.Pod) {
			p.Annotations[v1alpha1.SandboxPauseAnnotationKey] = "{"
		}), Running, Rest, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(tt.pod, tt.target, now)
			var got string
			switch d.Step {
			case Write:
				value, err := d.Intent.Encode()
				must.Succeed(t, err)
				got = value
			case Resize:
				var parts []string
				for _, c := range d.Changes {
					parts = append(parts, c.Path+" "+c.CPU.Request.String()+"/"+c.CPU.Limit.String())
				}
				got = strings.Join(parts, ", ")
			case Refuse:
				got = d.Reason + " " + d.Message
			}
			if d.Step != tt.step || !strings.Contains(got, tt.says) {
				t.Errorf("%s: %s, want %s: %s", d.Step, got, tt.step, tt.says)
			}
		})
	}
}

func TestObserve(t *testing.T) {
	for name, tt := range map[string]struct {
		pod    *corev1.Pod
		state  State
		reason string
	}{
		"untouched":   {podOf("1/1", "1/1"), Untouched, ""},
		"asked for":   {podOf("1/1", "1/1", intends(Paused, "1/1")), Pausing, ""},
		"not yet":     {podOf("10m/10m", "1/1", intends(Paused, "1/1")), Pausing, ""},
		"in progress": {podOf("10m/10m", "1/1", intends(Paused, "1/1"), says(corev1.PodResizeInProgress, "", 3)), Pausing, "InProgress"},
		"error":       {podOf("10m/10m", "1/1", intends(Paused, "1/1"), says(corev1.PodResizeInProgress, "Error", 3)), Pausing, "Error"},
		"paused":      {podOf("10m/10m", "10m/10m", intends(Paused, "1/1")), IsPaused, ""},
		// The floor that the kubelet reports is the last one, not this one.
		"not seen":     {podOf("10m/10m", "10m/10m", intends(Paused, "1/1"), unseen), Pausing, ""},
		"says nothing": {podOf("10m/10m", "", intends(Paused, "1/1")), Pausing, ""},
		"no room": {podOf("1/1", "10m/10m", intends(Running, "1/1"), says(corev1.PodResizeInProgress, "", 3),
			says(corev1.PodResizePending, Deferred, 3)), Resuming, Deferred},
		"old condition": {podOf("1/1", "10m/10m", intends(Running, "1/1"), says(corev1.PodResizePending, Deferred, 2)), Resuming, ""},
		"old and new": {podOf("1/1", "10m/10m", intends(Running, "1/1"), says(corev1.PodResizePending, Deferred, 2),
			says(corev1.PodResizeInProgress, "Error", 3)), Resuming, "Error"},
		"resumed": {podOf("1/1", "1/1", intends(Running, "1/1")), Resumed, ""},
		"not yet, behind one that stays": {podOf("10m/10m", "1/1", intends(Paused, "1/1"), func(p *corev1.Pod) {
			p.Spec.Containers = append([]corev1.Container{{Name: "stays"}}, p.Spec.Containers...)
		}), Pausing, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observe(tt.pod)
			if o.State != tt.state || o.Reason != tt.reason || (o.State == Untouched) != o.Since.IsZero() {
				t.Errorf("%+v, want %q for %q", o, tt.state, tt.reason)
			}
		})
	}
}

func TestSettled(t *testing.T) {
	resizing := says(corev1.PodResizeInProgress, "", 3)
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"at rest":               {podOf("1/1", "1/1"), true},
		"at rest, not seen":     {podOf("1/1", "1/1", unseen), false},
		"under way":             {podOf("1/1", "1/1", resizing), false},
		"under way, not seen":   {podOf("1/1", "1/1", resizing, unseen), false},
		"a kubelet without any": {podOf("1/1", "1/1", func(p *corev1.Pod) { p.Status.ObservedGeneration = 0 }), true},
	} {
		if got := Settled(tt.pod); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestIntentTravels(t *testing.T) {
	pod := podOf("1/1", "1/1", intends(Paused, "1500m/2"))
	i := Read(pod)
	if i == nil || !i.Containers["main"].equal(cpu("1500m/2")) || i.Time() != now.Add(-time.Hour) {
		t.Errorf("read %+v of %s", i, pod.Annotations[v1alpha1.SandboxPauseAnnotationKey])
	}
	for _, value := range []string{"", "{}", "x", `{"target":"Elsewhere"}`} {
		pod.Annotations[v1alpha1.SandboxPauseAnnotationKey] = value
		if Read(pod) != nil {
			t.Errorf("%q reads as an intent", value)
		}
	}
}
