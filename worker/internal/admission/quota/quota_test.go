// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

func newEntry(text string) Entry { return Parse(map[string]string{"t": text})["t"] }

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "",
		"maxReplicas: 3":                 "replicas=3",
		"{maxReplicas: 0}":               "replicas=0",
		`cpu: 500m`:                      "cpu=500",
		`cpu: 2`:                         "cpu=2000",
		`memory: 1Gi`:                    "memory=1073741824",
		"maxReplicas: -1":                "maxReplicas -1 is not valid, want 0 or more",
		`cpu: "-1"`:                      "cpu -1 is not valid, want 0 or more",
		`memory: -1Gi`:                   "memory -1Gi is not valid",
		"maxReplicas: many":              "want YAML with maxReplicas (a whole number), cpu and memory (quantities)",
		"maxReplicas: 1.5":               "want YAML with maxReplicas",
		"cpu: lots":                      "want YAML with maxReplicas",
		"gpus: 1":                        `unknown field "gpus"`,
		"maxReplicas: 1\nmaxReplicas: 2": "already set",
		"- 1":                            "want YAML with maxReplicas",
	} {
		e := newEntry(text)
		var got []string
		for name, n := range map[string]*int64{"replicas": e.Replicas, "cpu": e.CPU, "memory": e.Memory} {
			if n != nil {
				got = append(got, fmt.Sprintf("%s=%d", name, *n))
			}
		}
		if e.Err != nil {
			if !strings.Contains(e.Err.Error(), "ConfigMap atoll-team-quotas, key t: ") {
				t.Errorf("%q: the error does not say where: %v", text, e.Err)
			}
			got = append(got, e.Err.Error())
		}
		if all := strings.Join(got, " "); want == "" && all != "" || !strings.Contains(all, want) {
			t.Errorf("%q: %s\nwant %s", text, all, want)
		}
	}
	limits := Parse(map[string]string{"a": "maxReplicas: 1", Default: "maxReplicas: 2"})
	if *limits.Of("a").Replicas != 1 || *limits.Of("b").Replicas != 2 || Parse(nil).Of("b") != (Entry{}) {
		t.Errorf("the default does not hold for those without an entry: %+v", limits)
	}
}

func TestDecide(t *testing.T) {
	const gi = 1 << 30
	pod := Amount{1, 500, 2 * gi}
	for _, c := range []struct {
		limit  string
		others Amount
		pod    Amount
		from   int32
		to     int32
		want   int32
		why    string
	}{
		{"", Amount{1000, 0, 0}, pod, 0, 9, 9, ""},
		{"maxReplicas: 10", Amount{1, 0, 0}, pod, 0, 9, 9, ""},
		{"maxReplicas: 10", Amount{4, 0, 0}, pod, 0, 9, 6, "has room for 6 of 9 replicas: its other pools hold 4 of 10 replicas"},
		{"maxReplicas: 10", Amount{10, 0, 0}, pod, 0, 9, 0, "room for 0 of 9"},
		{"maxReplicas: 10", Amount{12, 0, 0}, pod, 3, 9, 3, "room for 3 of 9"}, // lowered: nothing is taken
		{"maxReplicas: 10", Amount{12, 0, 0}, pod, 3, 3, 3, ""},
		{"maxReplicas: 10", Amount{12, 0, 0}, pod, 9, 3, 3, ""},
		{"cpu: 4", Amount{0, 1500, 0}, pod, 0, 9, 5, "its other pools hold 1500m of 4 cpu, and a Pod needs 500m"},
		{"memory: 10Gi", Amount{0, 0, 3 * gi}, pod, 1, 9, 3, "its other pools hold 3Gi of 10Gi memory, and a Pod needs 2Gi"},
		{"{maxReplicas: 10, cpu: 4, memory: 10Gi}", Amount{4, 0, 0}, pod, 0, 9, 5, "memory"},
		// of two that are as short, the first
		{"{maxReplicas: 8, cpu: 4}", Amount{4, 2000, 0}, pod, 0, 9, 4, "its other pools hold 4 of 8 replicas"},
		{"cpu: 4", Amount{0, 9000, 0}, Amount{1, 0, 0}, 0, 9, 9, ""}, // a Pod that needs none
		{"memory: 8Ei", Amount{}, Amount{1, 0, 1 << 62}, 0, 9, 1, "memory"},
		{"maxReplicas: x", Amount{}, pod, 2, 9, 2, "the quota of team t cannot be read: ConfigMap atoll-team-quotas, key t"},
	} {
		v := Decide(Demand{Team: "t", Entry: newEntry(c.limit), Others: c.others, Pod: c.pod, From: c.from, To: c.to})
		if v.Replicas != c.want || (c.why == "") != v.Whole(c.to) || !strings.Contains(v.Message, c.why) || (v.RetryAfter == 0) != (c.why == "") {
			t.Errorf("%s, others %+v, %d to %d: %+v\nwant %d, %q", c.limit, c.others, c.from, c.to, v, c.want, c.why)
		}
		if strings.Contains(v.Message, "\n") {
			t.Errorf("%s: more than a line: %q", c.limit, v.Message)
		}
	}
}

func TestAmountsStopAtTheLargestNumber(t *testing.T) {
	const most = math.MaxInt64
	for _, c := range []struct{ a, n, sum, product int64 }{
		{0, most, most, 0}, {2, 3, 5, 6}, {2, most / 2, most/2 + 2, most - 1}, {2, most/2 + 1, most/2 + 3, most}, {1, most, most, most},
		{most, most, most, most},
	} {
		a, b := Amount{c.a, c.a, c.a}, Amount{c.n, c.n, c.n}
		if got := a.Plus(b); got != (Amount{c.sum, c.sum, c.sum}) {
			t.Errorf("%d and %d are %+v", c.a, c.n, got)
		}
		if got := a.Times(c.n); got != (Amount{c.product, c.product, c.product}) {
			t.Errorf("%d times %d is %+v", c.a, c.n, got)
		}
	}
}

// world is a cache's content, and a plugin that reads it.
type world struct {
	*Quota
	t     *testing.T
	store client.Client
	clock *clocktesting.FakePassiveClock
}

func newWorld(t *testing.T, quotas map[string]string) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		must.Succeed(t, add(scheme))
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.SandboxPool{})
	for _, index := range sandboxcache.Indexes() {
		builder = builder.WithIndex(index.Object, index.Field, index.Extract)
	}
	w := &world{t: t, store: builder.Build(), clock: clocktesting.NewFakePassiveClock(time.Now())}
	w.Quota = New(Options{ClusterID: "east", Reader: w.store, Clock: w.clock,
		Limits: func() (Limits, bool) { return Parse(quotas), quotas != nil }})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	must.Succeed(w.t, err)
}

// newPool is of a namespace named like the team.
func newPool(team, name string, replicas int32) *v1alpha1.SandboxPool {
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, Labels: map[string]string{v1alpha1.LabelTeam: team}}}
	p.Spec.Replicas = replicas
	p.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")},
	}}}
	return p
}

func (w *world) addPool(p *v1alpha1.SandboxPool) {
	w.t.Helper()
	status := p.Status
	w.must(w.store.Create(w.t.Context(), p))
	p.Status = status
	w.must(w.store.Status().Update(w.t.Context(), p))
	w.clock.SetTime(w.clock.Now().Add(2 * snapshotAgePod))
}

func (w *world) ask(p *v1alpha1.SandboxPool, from, to int32, probe bool) int32 {
	w.t.Helper()
	v, err := admission.New(clock.RealClock{}, w).PreUpdatePool(w.t.Context(), &admission.Change{Pool: p, From: from, To: to, Probe: probe})
	w.must(err)
	return v.Replicas
}

func (w *world) expect(what string, got, want int32) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("%s: %d are admitted, want %d", what, got, want)
	}
}

// TestWhatIsHeld: by pools of the team in any namespace, by frozen members without a pool, and by Pods beyond replicas.
func TestWhatIsHeld(t *testing.T) {
	w := newWorld(t, map[string]string{"ml": "{maxReplicas: 20, cpu: 9}"})
	other := newPool("ml", "elsewhere", 3)
	other.Namespace = "other"
	w.addPool(other)
	w.addPool(newPool("web", "not-theirs", 100))
	teamless := newPool("", "other", 100)
	teamless.Namespace, teamless.Labels = "ml", nil
	w.addPool(teamless)
	shrunk := newPool("ml", "shrunk", 1)
	shrunk.Status.RunningReplicas, shrunk.Status.IdleReplicas, shrunk.Status.StartingReplicas, shrunk.Status.StoppingReplicas = 1, 1, 1, 1
	w.addPool(shrunk)
	dying := newPool("ml", "dying", 50)
	dying.Finalizers, dying.Status.RunningReplicas = []string{v1alpha1.SandboxPoolFinalizer}, 2
	w.addPool(dying)
	w.must(w.store.Delete(t.Context(), dying))
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "env"}}
	member := func(name string, replicas int32, frozen bool) (m v1alpha1.EnvClusterMember) {
		m.Name, m.Spec.Replicas, m.Metadata.Labels = name, replicas, map[string]string{v1alpha1.LabelTeam: "ml"}
		if frozen {
			m.Spec.Template = newPool("ml", name, 0).Spec.Template
		}
		return m
	}
	env.Spec.Clusters = []v1alpha1.EnvClusterSpec{
		{ClusterID: "east", Members: []v1alpha1.EnvClusterMember{member("frozen", 2, true), member("wish", 100, false),
			member("shrunk", 3, true)}},
		{ClusterID: "west", Members: []v1alpha1.EnvClusterMember{member("foreign", 100, true)}},
	}
	w.must(w.store.Create(t.Context(), env))
	// 3 elsewhere, 4 shrunk, 2 dying, 2 frozen; by CPU 5.5 of 9, which leaves 7 Pods.
	w.expect("by CPU", w.ask(newPool("ml", "new", 0), 0, 50, true), 7)
	small := newPool("ml", "new", 0)
	small.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	w.expect("by replicas", w.ask(small, 0, 50, true), 9)
	w.expect("a pool's own do not count twice", w.ask(other, 3, 50, true), 10)
	w.expect("another team", w.ask(newPool("web", "not-theirs", 100), 100, 500, true), 500)
	w.expect("of no team", w.ask(teamless, 100, 500, true), 500)
}

// TestTwoPoolsAndTheLastPlace: what is admitted is reserved until the cache shows it, or the reservation expires.
func TestTwoPoolsAndTheLastPlace(t *testing.T) {
	w := newWorld(t, map[string]string{"ml": "maxReplicas: 10"})
	a, b := newPool("ml", "a", 4), newPool("ml", "b", 4)
	w.addPool(a)
	w.addPool(b)
	w.expect("a probe", w.ask(a, 4, 6, true), 6)
	w.expect("b, after a's probe", w.ask(b, 4, 6, true), 6)
	w.expect("a", w.ask(a, 4, 6, false), 6)
	w.expect("b, after a has all", w.ask(b, 4, 6, false), 4)
	w.expect("a again", w.ask(a, 4, 6, false), 6)
	w.expect("a takes less", w.ask(a, 4, 5, false), 5)
	w.expect("b, with what a left", w.ask(b, 4, 6, false), 5)
	// The cache shows a; then a shrinks by hand, and its former part is free at once.
	a.Spec.Replicas = 5
	w.must(w.store.Update(t.Context(), a))
	w.clock.SetTime(w.clock.Now().Add(2 * snapshotAge))
	w.expect("b, with a seen", w.ask(b, 4, 6, false), 5)
	a.Spec.Replicas = 2
	w.must(w.store.Update(t.Context(), a))
	w.clock.SetTime(w.clock.Now().Add(2 * snapshotAge))
	w.expect("b, with a smaller", w.ask(b, 4, 9, false), 8)
	// The caller that asked for b has failed to write.
	w.expect("a, with b reserved", w.ask(a, 2, 9, false), 2)
	w.clock.SetTime(w.clock.Now().Add(reservedFor + time.Second))
	w.expect("a, with b forgotten", w.ask(a, 2, 9, false), 6)
	if len(w.reserved) != 1 {
		t.Errorf("reservations are kept: %v", w.reserved)
	}
}

// TestManyPoolsAtOnce: with any number of concurrent questions, no more is admitted than there is room for.
func TestManyPoolsAtOnce(t *testing.T) {
	const limit, pools = 50, 40
	w := newWorld(t, map[string]string{"ml": fmt.Sprintf("maxReplicas: %d", limit)})
	chain := admission.New(clock.RealClock{}, w)
	var wg sync.WaitGroup
	admitted := make([]int32, pools)
	for i := range pools {
		wg.Go(func() {
			p := newPool("ml", fmt.Sprintf("p%d", i), 0)
			for range 3 {
				v, err := chain.PreCreatePool(context.Background(), &admission.Change{Key: p.Name, Pool: p, To: 3})
				if err != nil {
					t.Error(err)
				}
				admitted[i] = v.Replicas
			}
		})
	}
	wg.Wait()
	var sum int32
	for _, n := range admitted {
		sum += n
	}
	if sum != limit {
		t.Errorf("%d were admitted, want %d", sum, limit)
	}
}

// TestPods: all Pods of a team within its limit are created, no matter who set replicas; of a team beyond it as many as fit.
func TestPods(t *testing.T) {
	quotas := map[string]string{"ml": "maxReplicas: 5"}
	w := newWorld(t, quotas)
	a, b := newPool("ml", "a", 3), newPool("ml", "b", 2)
	w.addPool(a)
	w.addPool(b)
	serial := 0
	makePod := func(p *v1alpha1.SandboxPool) bool {
		t.Helper()
		serial++
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: fmt.Sprintf("%s-%d", p.Name, serial),
			Labels: map[string]string{
				v1alpha1.ManagedByLabelKey: v1alpha1.ManagedBySandboxAPIServer, v1alpha1.SandboxPoolLabelKey: p.Name,
			}}, Spec: p.Spec.Template.Spec}
		v, err := admission.New(clock.RealClock{}, w).PreCreatePod(t.Context(), &admission.PodRequest{Pool: p, Pod: pod})
		w.must(err)
		if v.Whole(1) {
			w.must(w.store.Create(t.Context(), pod))
		} else if v.Reason != admission.QuotaExceeded || !strings.Contains(v.Message, "6 of 5 replicas would be held") {
			t.Errorf("refused with %+v", v)
		}
		return v.Whole(1)
	}
	fill := func(p *v1alpha1.SandboxPool, want int) {
		t.Helper()
		got := 0
		for got <= 20 && makePod(p) {
			got++
		}
		if got != want {
			t.Errorf("%s got %d more Pods, want %d", p.Name, got, want)
		}
	}
	for range 3 {
		if !makePod(a) {
			t.Error("a Pod within the limit is refused")
		}
	}
	b.Spec.Replicas = 20 // by hand, and its Pods are made before the snapshot is old
	w.must(w.store.Update(t.Context(), b))
	fill(b, 2)
	fill(a, 0)
	if len(w.pods) > 1 {
		t.Errorf("Pods that the cache shows are kept: %v", w.pods)
	}
	// An unreadable limit stops no Pod, and neither does a deleted one.
	quotas["ml"] = "maxReplicas: x"
	if !makePod(a) {
		t.Error("a Pod is refused by a quota that cannot be read")
	}
	delete(quotas, "ml")
	if !makePod(a) {
		t.Error("a Pod is refused without a quota")
	}
}

func TestPodsOnTheirWayCount(t *testing.T) {
	w := newWorld(t, map[string]string{"ml": "maxReplicas: 5"})
	p := newPool("ml", "p", 20)
	w.addPool(p)
	admitted := 0
	for i := range 20 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: fmt.Sprint(i)}}
		v, err := w.PreCreatePod(t.Context(), &admission.PodRequest{Pool: p, Pod: pod})
		w.must(err)
		if v.Whole(1) {
			admitted++
		}
	}
	if admitted != 5 {
		t.Errorf("%d Pods are admitted that no cache has, want 5", admitted)
	}
	w.clock.SetTime(w.clock.Now().Add(reservedFor + time.Second))
	if v, err := w.PreCreatePod(t.Context(), &admission.PodRequest{Pool: p, Pod: &corev1.Pod{}}); err != nil || !v.Whole(1) {
		t.Errorf("Pods that never came count for ever: %+v, %v", v, err)
	}
}

func TestNothingIsDecidedBeforeTheLimitsAreRead(t *testing.T) {
	w := newWorld(t, nil)
	p := newPool("ml", "p", 1)
	if v, err := w.PreUpdatePool(t.Context(), &admission.Change{Pool: p, From: 1, To: 2}); err == nil {
		t.Errorf("growth: %+v", v)
	}
	if v, err := w.PreCreatePod(t.Context(), &admission.PodRequest{Pool: p, Pod: &corev1.Pod{}}); err == nil {
		t.Errorf("a Pod: %+v", v)
	}
}

func TestNeeds(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for name, q := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if q != "" {
				l[name] = resource.MustParse(q)
			}
		}
		return l
	}
	always := corev1.ContainerRestartPolicyAlways
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want Amount
	}{
		"nothing": {corev1.PodSpec{Containers: []corev1.Container{{}}}, Amount{1, 0, 0}},
		"requests": {corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("1", "1Ki"),
			Limits: list("2", "")}}, {Resources: corev1.ResourceRequirements{Limits: list("", "1Ki")}}}}, Amount{1, 1000, 2048}},
		"sidecars and overhead": {corev1.PodSpec{
			InitContainers: []corev1.Container{{RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: list("100m", "")}}},
			Containers:     []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("1", "")}}},
			Overhead:       list("50m", ""),
		}, Amount{1, 1150, 0}},
	} {
		if got := needs(&c.spec); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	shared := corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: list("1", "")}}}}
	needs(&shared)
	if shared.Containers[0].Resources.Requests != nil {
		t.Error("the cache's own object was changed")
	}
}
