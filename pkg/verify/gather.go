// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
)

// Names of the objects that a worker keeps in its cluster.
const (
	defaultNamespace = "atoll-system"
	leaseName        = "atoll-worker"
	stateName        = "atoll-worker-state"
	incarnationKey   = "incarnation"
)

// lookTimeout bounds the time to read one part of the federation, so that a dead part does not hide the others.
const lookTimeout = 15 * time.Second

// Federation lists the parts to read.
type Federation struct {
	Clusters []Reader
	Hub      *HubReader // nil: the hub is not read
	// Metrics are the URLs of the metrics of hubs and workers, by a name that is unique.
	Metrics map[string]string
}

// Reader reads one cluster directly from the API server. It does not use a cache, because the cache may be what is wrong.
type Reader struct {
	ID     string
	Client client.Reader
	// Namespace of the worker. Empty: atoll-system.
	Namespace string

	date *dateReader // nil: the server's clock is not read
}

// NewReader returns a Reader for the cluster of a client configuration. Its credentials must permit listing Pods, Envs and pools, and
// reading atoll-system.
func NewReader(id string, cfg *rest.Config) (Reader, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return Reader{}, fmt.Errorf("building the scheme: %w", err)
		}
	}
	date := &dateReader{}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(date.watch)
	cfg.QPS = -1
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return Reader{}, fmt.Errorf("building a client of %s: %w", id, err)
	}
	return Reader{ID: id, Client: c, date: date}, nil
}

// dateReader reads a server's clock from its responses.
type dateReader struct {
	mu   sync.Mutex
	last Clock
}

func (d *dateReader) watch(next http.RoundTripper) http.RoundTripper { return dated{d, next} }

type dated struct {
	reader *dateReader
	next   http.RoundTripper
}

func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	begin := time.Now()
	response, err := d.next.RoundTrip(r)
	if err != nil {
		return response, err
	}
	if now, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		// The header has whole seconds, and was written between sending and receiving.
		d.reader.set(clockAt(now.Add(500*time.Millisecond), begin))
	}
	return response, nil
}

// clockAt returns the clock of a server that reported now in its response to a call that started at begin.
func clockAt(now, begin time.Time) Clock {
	return Clock{Now: now, Offset: now.Sub(begin.Add(time.Since(begin) / 2))}
}

func (d *dateReader) set(c Clock) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = c
}

func (d *dateReader) clock() Clock {
	if d == nil {
		return Clock{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// Look gathers a snapshot. If previous is not nil, it asks the hub for the sandboxes that have gone since then.
func (f *Federation) Look(ctx context.Context, previous *Snapshot) *Snapshot {
	clusters := make([]*Cluster, len(f.Clusters))
	var hub *Hub
	var programs []Program
	blind := make(chan Blind, len(f.Clusters)+len(f.Metrics)+2)
	part := func(what string, look func(context.Context) error) func() {
		return func() {
			ctx, cancel := context.WithTimeout(ctx, lookTimeout)
			defer cancel()
			if err := look(ctx); err != nil {
				blind <- Blind{What: what, Why: brief(err), Refused: refused(err)}
			}
		}
	}
	var looking sync.WaitGroup
	for i, r := range f.Clusters {
		looking.Go(part("cluster "+r.ID, func(ctx context.Context) (err error) {
			clusters[i], err = r.look(ctx)
			return err
		}))
	}
	if f.Hub != nil {
		looking.Go(part(hubName, func(ctx context.Context) (err error) {
			hub, err = f.Hub.look(ctx)
			return err
		}))
	}
	var mu sync.Mutex
	for name, url := range f.Metrics {
		looking.Go(part("metrics "+name, func(ctx context.Context) error {
			values, err := scrape(ctx, url)
			if err == nil {
				mu.Lock()
				programs = append(programs, Program{Name: name, Values: values})
				mu.Unlock()
			}
			return err
		}))
	}
	looking.Wait()
	s := &Snapshot{Hub: hub, Programs: programs}
	for _, c := range clusters {
		if c != nil {
			s.Clusters = append(s.Clusters, *c)
		}
	}
	if hub != nil {
		part("hub, about sandboxes", func(ctx context.Context) error { return f.Hub.lookUp(ctx, previous, s) })()
	}
	close(blind)
	for b := range blind {
		s.Blind = append(s.Blind, b)
	}
	return s
}

// brief removes gRPC's prefix from an error's message.
func brief(err error) string {
	var told interface{ GRPCStatus() *status.Status }
	if errors.As(err, &told) {
		return told.GRPCStatus().Message()
	}
	return err.Error()
}

// refused reports whether a server responds but rejects us.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return true
	}
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)
}

func (r *Reader) look(ctx context.Context) (*Cluster, error) {
	c := &Cluster{ID: r.ID}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.HasLabels{v1alpha1.SandboxPoolLabelKey}); err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	var envs v1alpha1.SandboxEnvList
	if err := r.Client.List(ctx, &envs); err != nil {
		return nil, fmt.Errorf("listing SandboxEnvs: %w", err)
	}
	var pools v1alpha1.SandboxPoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		return nil, fmt.Errorf("listing SandboxPools: %w", err)
	}
	c.Pods, c.Envs, c.Pools = pods.Items, envs.Items, pools.Items
	var system corev1.Namespace
	if err := r.Client.Get(ctx, types.NamespacedName{Name: "kube-system"}, &system); err != nil {
		return nil, fmt.Errorf("reading the cluster's uid: %w", err)
	}
	c.UID = string(system.UID)
	if err := r.lookAtWorker(ctx, c); err != nil {
		return nil, err
	}
	c.Clock = r.date.clock()
	return c, nil
}

// lookAtWorker reads the objects of the worker. A cluster that never had a worker has none.
func (r *Reader) lookAtWorker(ctx context.Context, c *Cluster) error {
	namespace := cmp.Or(r.Namespace, defaultNamespace)
	var state corev1.ConfigMap
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: stateName}, &state)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the worker's state: %w", err)
	}
	if text := state.Data[incarnationKey]; text != "" {
		if c.Incarnation, err = strconv.ParseUint(text, 10, 64); err != nil {
			return fmt.Errorf("reading the worker's state: %w", err)
		}
	}
	var lease coordinationv1.Lease
	err = r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: leaseName}, &lease)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading the worker's lease: %w", err)
	}
	c.Lease = leaseOf(&lease, r.date.clock().Now)
	return nil
}

// leaseOf converts a lease. It does not use renewTime, which is from the holder's clock and may be wrong, but the time of the API server's
// last write in the managed fields, which is from the same clock as now.
func leaseOf(l *coordinationv1.Lease, now time.Time) *Lease {
	out := &Lease{}
	if l.Spec.HolderIdentity != nil {
		out.Holder = *l.Spec.HolderIdentity
	}
	if l.Spec.LeaseDurationSeconds != nil {
		out.Duration = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	var written time.Time
	for _, entry := range l.ManagedFields {
		if entry.Time != nil && entry.Time.After(written) {
			written = entry.Time.Time
		}
	}
	if !now.IsZero() && !written.IsZero() {
		age := max(0, now.Sub(written))
		out.Age = &age
	}
	return out
}
