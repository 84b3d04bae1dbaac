// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
)

var rounds = flag.Int("rounds", 100, "how often clusters go, stall and come back under a controller")

// TestAControllerOverClustersThatComeAndGo: a cluster goes, comes back as another one, stalls and responds again, a hundred times. Its
// controller is called for none that is gone, hears of changes made while one stalled, and nothing of what has gone is left.
func TestAControllerOverClustersThatComeAndGo(t *testing.T) {
	f := newFleet(t)
	f.hub.set("west=0=FRESH", nil)
	f.serves("west")
	var first int
	for i := range *rounds {
		f.hub.set(fmt.Sprintf("east=%d=FRESH west=0=FRESH", i), nil)
		f.serves("east", "west")

		attempts := f.count(f.attempts, "east")
		f.stall.Close()
		f.hub.set(fmt.Sprintf("east=%d=UNREACHABLE west=0=FRESH", i), nil)
		f.serves("west")
		if f.seen("east") == f.seen("west") {
			t.Fatalf("round %d: east does not stall", i)
		}
		f.hub.polled(t)
		f.stall.Open()
		f.hub.set(fmt.Sprintf("east=%d=FRESH west=0=FRESH", i), nil)
		f.sees("east")
		f.serves("east", "west")
		if n := f.count(f.attempts, "east"); n != attempts {
			t.Errorf("round %d: a cluster that stalled was connected to again", i)
		}

		f.hub.set("west=0=FRESH", nil)
		planetest.Eventually(t, "east to be disengaged", func() error {
			_, err := f.provider.Get(t.Context(), "east")
			return wait.If(err != nil, "it is engaged")
		})
		f.serves("west") // what was under way for east has ended
		calls := f.count(f.calls, "east")
		f.serves("west")
		if n := f.count(f.calls, "east"); n != calls {
			t.Fatalf("round %d: %d reconciles for a cluster that is gone", i, n-calls)
		}
		if i == min(9, *rounds-1) {
			first = runtime.NumGoroutine()
		}
	}
	// multicluster-runtime v0.24.1 keeps a goroutine of each engagement (startWithinContext), and some connections end only once they
	// have been idle: two of each engagement would be a leak.
	planetest.Eventually(t, "goroutines of clusters that are gone to end", func() error {
		n := runtime.NumGoroutine() - *rounds
		return wait.If(n <= first+*rounds/2, fmt.Sprintf("%d, %d after the tenth round", n, first))
	})
}

// fleet is a controller of Namespaces over the clusters of a hub: east and west are one API server, reached in two ways.
type fleet struct {
	*planetest.Place
	test     *testing.T
	hub      *registry
	provider *Provider
	stall    testserver.Gate // of east
	changes  int

	mu       sync.Mutex
	attempts map[string]int    // to connect, by cluster
	calls    map[string]int    // of the controller, by cluster
	changed  map[string]string // the last change that it has seen, by cluster
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{
		Place: east.Place(t), test: t, hub: &registry{},
		attempts: map[string]int{}, calls: map[string]int{}, changed: map[string]string{},
	}
	var err error
	f.provider, err = New(Options{Hub: f.hub, Interval: 10 * time.Millisecond, Log: testlog.New(t), Config: f.config})
	must.Succeed(t, err)
	mgr, err := mcmanager.New(east.Up(t).Config(), f.provider, mcmanager.Options{
		Logger: testlog.New(t), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	must.Succeed(t, err)
	must.Succeed(t, mcbuilder.ControllerManagedBy(mgr).Named("fleet").For(&corev1.Namespace{}).WithOptions(mccontroller.Options{
		SkipNameValidation: ptr.To(true),  // names are the process's, and a test may run twice
		UsePriorityQueue:   ptr.To(false), // it can leave a goroutine behind at shutdown (controller-runtime's issue 3538)
	}).Complete(mcreconcile.Func(
		func(ctx context.Context, r mcreconcile.Request) (ctrl.Result, error) {
			f.locked(func() { f.calls[r.ClusterName.String()]++ })
			cl, err := mgr.GetCluster(ctx, r.ClusterName)
			if err != nil || r.Name != f.Namespace {
				return ctrl.Result{}, err
			}
			ns := &corev1.Namespace{}
			if err := cl.GetClient().Get(ctx, r.NamespacedName, ns); err != nil {
				return ctrl.Result{}, err
			}
			f.locked(func() { f.changed[r.ClusterName.String()] = ns.Annotations["change"] })
			return ctrl.Result{}, nil
		})))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		f.stall.Open()
		cancel()
		must.Succeed(t, <-ended)
	})
	return f
}

func (f *fleet) config(_ context.Context, id string) (*rest.Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attempts[id]++
	cfg := rest.CopyConfig(f.Plane.Config())
	if id == "east" {
		cfg.Dial = f.stall.Dial
	}
	return cfg, nil
}

func (f *fleet) locked(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *fleet) count(of map[string]int, cluster string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return of[cluster]
}

func (f *fleet) seen(cluster string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed[cluster]
}

// change changes the test's Namespace.
func (f *fleet) change() {
	f.test.Helper()
	f.changes++
	f.Must(f.Live.Patch(f.test.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.Namespace}},
		client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"change":"%d"}}}`, f.changes))))
}

// serves changes the Namespace, and waits until the controller has seen that in these clusters.
func (f *fleet) serves(clusters ...string) {
	f.test.Helper()
	f.change()
	f.sees(clusters...)
}

// sees waits until the controller has seen the last change in these clusters.
func (f *fleet) sees(clusters ...string) {
	f.test.Helper()
	f.Eventually(fmt.Sprintf("change %d to be seen in %s", f.changes, clusters), func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, cluster := range clusters {
			if f.changed[cluster] != fmt.Sprint(f.changes) {
				return fmt.Errorf("%v", maps.Clone(f.changed))
			}
		}
		return nil
	})
}
