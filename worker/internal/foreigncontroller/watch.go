// SPDX-License-Identifier: Apache-2.0

package foreigncontroller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/pkg/foreigncontroller"
)

const (
	// quiet is how long other controllers must not have written a status before we write it again.
	quiet = 2 * time.Minute
	// every is how often leases are read.
	every = 5 * time.Second
	// lookTimeout bounds a read. It tolerates a slow API server, because another controller must be noticed even then.
	lookTimeout = 2 * every
	// forgotten is how long a contested object is remembered after the last question about it.
	forgotten = time.Hour
)

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Options are a Watch's settings.
type Options struct {
	// Leases reads leases, bypassing every cache.
	Leases client.Reader
	// Namespace is the namespace of this installation.
	Namespace string
	// Named are the leases of other controllers, as NAMESPACE/NAME. Without any, no lease is read.
	Named   []string
	Events  events.EventRecorder
	Clock   clock.WithTicker
	Metrics prometheus.Registerer
	Log     logr.Logger
}

// Watch reports which objects another controller manages.
type Watch struct {
	opts    Options
	objects *prometheus.GaugeVec
	looks   *prometheus.CounterVec

	mu        sync.Mutex
	contested map[types.UID]*contest
	leases    map[string]*renewal      // by namespace/name
	holder    *foreigncontroller.Lease // holder of a live lease; nil if there is none
	changed   func()
}

// contest is about one object.
type contest struct {
	write  foreigncontroller.Write
	since  time.Time // when it was first seen
	asked  time.Time // when Paused was last called for it
	reason foreigncontroller.Reason
}

// renewal is a lease as last seen.
type renewal struct {
	at    time.Time // renewal time in the lease
	holds string
	since time.Time // when it was first seen, by our clock
}

// New creates a Watch.
func New(o Options) (*Watch, error) {
	w := &Watch{
		opts: o, contested: map[types.UID]*contest{}, leases: map[string]*renewal{},
		objects: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "atoll_worker_objects_kept_by_others",
			Help: "Pools and Envs that another controller manages, and that are left alone, by how it was detected.",
		}, []string{"reason"}),
		looks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_lease_looks_total", Help: "Checks for leases of other controllers, by result: done or failed.",
		}, []string{"result"}),
	}
	for _, c := range []prometheus.Collector{w.objects, w.looks} {
		if err := o.Metrics.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics of other controllers: %w", err)
		}
	}
	return w, nil
}

// NeedLeaderElection returns false, so that a new leader already knows the other controllers.
func (w *Watch) NeedLeaderElection() bool { return false }

// Start reads leases until ctx ends. If a read fails, the last result stays.
func (w *Watch) Start(ctx context.Context) error {
	ticker := w.opts.Clock.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			w.looks.WithLabelValues("failed").Inc()
			w.opts.Log.Error(err, "cannot read whether another controller manages the same objects, will try again")
		}
		w.count()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

func (w *Watch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if len(w.opts.Named) == 0 {
		return nil
	}
	var leases []coordinationv1.Lease
	for _, namespace := range namespacesOf(w.opts.Named) {
		list := &coordinationv1.LeaseList{}
		err := w.opts.Leases.List(ctx, list, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
		if err != nil {
			return fmt.Errorf("listing leases in namespace %s: %w", namespace, err)
		}
		leases = append(leases, list.Items...)
	}
	w.looks.WithLabelValues("done").Inc()
	w.see(foreigncontroller.Leases(leases, w.opts.Namespace, w.opts.Named))
	return nil
}

// namespacesOf returns the namespaces of NAMESPACE/NAME, each once. A worker that is limited to namespaces may list no others.
func namespacesOf(named []string) []string {
	var out []string
	for _, name := range named {
		namespace, _, _ := strings.Cut(name, "/")
		out = append(out, namespace)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// see evaluates the leases of other controllers. A lease is live for its duration after its last observed renewal.
func (w *Watch) see(found []foreigncontroller.Lease) {
	if changed := w.note(found); changed != nil {
		changed()
	}
}

// note updates the leases. If one has become live, or none is any more, it returns the function to call.
func (w *Watch) note(found []foreigncontroller.Lease) (call func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.opts.Clock.Now()
	var live *foreigncontroller.Lease
	seen := map[string]*renewal{}
	for i := range found {
		l := &found[i]
		key := l.Namespace + "/" + l.Name
		r := w.leases[key]
		if r == nil || !r.at.Equal(l.Renewed) || r.holds != l.Holder {
			r = &renewal{at: l.Renewed, holds: l.Holder, since: now}
		}
		seen[key] = r
		if live == nil && now.Sub(r.since) < l.Duration {
			live = l
		}
	}
	w.leases = seen
	if (live == nil) != (w.holder == nil) {
		call = w.changed
	}
	switch before := w.holder; {
	case live != nil && (before == nil || before.Namespace != live.Namespace || before.Name != live.Name):
		w.opts.Log.Info("Another controller manages the same objects; all of them are left alone",
			"reason", live.Reason, "lease", live.Namespace+"/"+live.Name, "holder", live.Holder)
	case live == nil && before != nil:
		w.opts.Log.Info("The other controller is gone; this worker manages its objects from now on", "lease", before.Namespace+"/"+before.Name)
	}
	w.holder = live
	return call
}

// OnChange registers f, which is called when objects become paused or cease to be, and must not block.
func (w *Watch) OnChange(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed = f
}

// Paused reports whether another controller manages an object from the cache. The caller then leaves the object alone, and asks again
// later.
func (w *Watch) Paused(object client.Object) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	now := w.opts.Clock.Now()
	uid := object.GetUID()
	c := w.contested[uid]
	var before foreigncontroller.Reason
	if c != nil {
		before = c.reason
	}
	reason, why := w.decide(object, now)
	if c = w.contested[uid]; c != nil {
		c.reason, c.asked = reason, now
	}
	changed := w.changed
	w.mu.Unlock()
	if reason != before && changed != nil {
		defer changed()
	}
	switch {
	case reason != "" && reason != before:
		w.opts.Log.Info("Left alone: "+why, "object", client.ObjectKeyFromObject(object).String(), "reason", reason)
		w.opts.Events.Eventf(object, nil, corev1.EventTypeWarning, string(reason), "LeaveAlone",
			"%s; nothing is done about it from here until that ends: see docs/moving-over.md", why)
	case reason == "" && before != "":
		w.opts.Log.Info("Kept again", "object", client.ObjectKeyFromObject(object).String())
		w.opts.Events.Eventf(object, nil, corev1.EventTypeNormal, "KeptAgain", "Keep", "no other controller manages it any more")
	}
	return reason != ""
}

// decide returns why an object must be left alone, and remembers the evidence. The caller holds the lock.
func (w *Watch) decide(object client.Object, now time.Time) (reason foreigncontroller.Reason, why string) {
	uid := object.GetUID()
	c := w.contested[uid]
	write, foreign := foreigncontroller.StatusWrite(object)
	if !foreign && w.holder == nil {
		delete(w.contested, uid)
		return "", ""
	}
	if c == nil {
		c = &contest{}
		w.contested[uid] = c
	}
	if c.write.Manager != write.Manager || !c.write.At.Equal(write.At) {
		c.write, c.since = write, now
	}
	switch {
	case w.holder != nil:
		return w.holder.Reason, fmt.Sprintf("%s holds lease %s/%s", w.holder.Holder, w.holder.Namespace, w.holder.Name)
	case foreign && now.Sub(c.since) < quiet:
		return foreigncontroller.StatusWritten, fmt.Sprintf("%s writes its status", write.Manager)
	}
	return "", ""
}

// count sets the gauge, and drops objects that are gone.
func (w *Watch) count() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, counts := w.opts.Clock.Now(), map[foreigncontroller.Reason]int{foreigncontroller.StatusWritten: 0, foreigncontroller.LeaseHeld: 0,
		foreigncontroller.OlderInstallation: 0}
	for uid, c := range w.contested {
		switch {
		case now.Sub(c.asked) > forgotten:
			delete(w.contested, uid)
		case c.reason != "":
			counts[c.reason]++
		}
	}
	for reason, n := range counts {
		w.objects.WithLabelValues(string(reason)).Set(float64(n))
	}
}
