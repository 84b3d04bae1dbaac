// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
)

var east = planetest.New("east", plane.Options{}, nil)

func TestMain(m *testing.M) { east.Main(m) }

func TestDecide(t *testing.T) {
	for name, tt := range map[string]struct{ engaged, listed, begin, end string }{
		"a new one":             {"", "east=1=FRESH", "east", ""},
		"a silent new one":      {"", "east=1=UNREACHABLE", "", ""},
		"a blip":                {"east=1", "east=1=UNREACHABLE", "", ""},
		"suspect":               {"east=1", "east=1=SUSPECT", "", ""},
		"drained":               {"east=1", "east=1=DRAINING", "", "east"},
		"forgotten":             {"east=1 west=2", "west=2=FRESH", "", "east"},
		"two claim it":          {"east=1", "east=1=QUARANTINED", "", "east"},
		"another with a name":   {"east=1", "east=2=FRESH", "east", "east"},
		"another, not attached": {"east=1", "east=2=UNREACHABLE", "", "east"},
	} {
		t.Run(name, func(t *testing.T) {
			engaged := map[string]string{}
			for _, e := range strings.Fields(tt.engaged) {
				id, uid, _ := strings.Cut(e, "=")
				engaged[id] = uid
			}
			begin, end := decide(engaged, clusters(tt.listed))
			var ids []string
			for _, c := range begin {
				ids = append(ids, c.GetId())
			}
			if got := strings.Join(ids, " "); got != tt.begin {
				t.Errorf("engages %q, want %q", got, tt.begin)
			}
			if got := strings.Join(end, " "); got != tt.end {
				t.Errorf("ends %q, want %q", got, tt.end)
			}
		})
	}
}

// clusters reads ID=UID=STATE.
func clusters(text string) (out []*sandboxv1.Cluster) {
	for _, word := range strings.Fields(text) {
		parts := strings.Split(word, "=")
		out = append(out, &sandboxv1.Cluster{Id: parts[0], Uid: parts[1], State: sandboxv1.ClusterState(sandboxv1.ClusterState_value[parts[2]])})
	}
	return out
}

// registry is the list that a hub would return.
type registry struct {
	sandboxv1.ClustersClient
	mu    sync.Mutex
	list  string
	err   error
	calls int
}

func (r *registry) set(list string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list, r.err = list, err
}

// polled waits until the list was asked for twice, so that one of the calls came after this one and its result was used.
func (r *registry) polled(t *testing.T) {
	t.Helper()
	count := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.calls
	}
	enough := count() + 2
	planetest.Eventually(t, "the list to be asked for", func() error { return wait.If(count() >= enough, count()) })
}

func (r *registry) ListClusters(context.Context, *sandboxv1.ListClustersRequest, ...grpc.CallOption) (*sandboxv1.ListClustersResponse,
	error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	return &sandboxv1.ListClustersResponse{Clusters: clusters(r.list)}, r.err
}

// engagements are the clusters whose context goes on.
type engagements struct {
	mu    sync.Mutex
	calls map[string]context.Context
	fail  error // once
}

func (e *engagements) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	// What a controller does first.
	if _, err := cl.GetCache().GetInformer(ctx, &corev1.Namespace{}); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.fail; err != nil {
		e.fail = nil
		return err
	}
	e.calls[name.String()] = ctx
	return nil
}

func (e *engagements) state() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for name, ctx := range e.calls {
		if ctx.Err() == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestASilentClusterHoldsUpNoOther: clusters come and go; a silent API server, and an Engage that fails, change nothing for the others.
func TestASilentClusterHoldsUpNoOther(t *testing.T) {
	silent := testserver.Listen(t)
	hub, host := &registry{}, &engagements{calls: map[string]context.Context{}, fail: errors.New("no")}
	p, err := New(Options{
		Hub: hub, Interval: 10 * time.Millisecond, Log: testlog.New(t),
		Config: func(_ context.Context, id string) (*rest.Config, error) {
			if id == "silent" {
				return &rest.Config{Host: "http://" + silent.Addr().String()}, nil
			}
			return east.Up(t).Config(), nil
		},
	})
	must.Succeed(t, err)
	must.Succeed(t, p.IndexField(t.Context(), &corev1.Namespace{}, "phase", func(o client.Object) []string {
		return []string{string(o.(*corev1.Namespace).Status.Phase)}
	}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Start(ctx, host) }()
	await := func(want string) {
		t.Helper()
		planetest.Eventually(t, fmt.Sprintf("%q to be engaged", want), func() error { return wait.If(host.state() == want, host.state()) })
	}
	hub.set("silent=0=FRESH east=1=FRESH west=2=FRESH", nil)
	await("east west")
	cl, err := p.Get(ctx, "east")
	must.Succeed(t, err)
	found := &corev1.NamespaceList{}
	planetest.Eventually(t, "the index", func() error {
		return cl.GetCache().List(ctx, found, client.MatchingFields{"phase": "Active"})
	})
	if len(found.Items) == 0 {
		t.Error("the index finds no namespaces")
	}
	if _, err := p.Get(ctx, "north"); !errors.Is(err, multicluster.ErrClusterNotFound) {
		t.Errorf("an unknown cluster gives %v", err)
	}
	hub.set("", errors.New("the hub is gone"))
	hub.set("silent=0=FRESH east=1=UNREACHABLE west=2=FRESH", nil)
	for i := range 20 {
		hub.set(fmt.Sprintf("silent=0=FRESH east=1=UNREACHABLE west=%d=FRESH", 2+i), nil)
		await("east west")
		hub.set("silent=0=FRESH east=1=FRESH west=0=DRAINING", nil)
		await("east")
	}
	cancel()
	must.Succeed(t, silent.Close())
	must.Succeed(t, <-ended)
	if got := host.state(); got != "" {
		t.Errorf("%s are engaged after the end", got)
	}
}

// An API server that tells its version, and then is silent when an index needs it, holds up no call of the provider.
func TestAnAPIServerThatFallsSilentHoldsUpNoOther(t *testing.T) {
	asked, speaks := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			_, _ = io.WriteString(w, "{}")
			return
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		<-speaks
		http.NotFound(w, r)
	}))
	defer server.Close()
	hub := &registry{}
	hub.set("silent=0=FRESH", nil)
	p, err := New(Options{
		Hub: hub, Interval: 10 * time.Millisecond, Log: testlog.New(t),
		Config: func(context.Context, string) (*rest.Config, error) { return &rest.Config{Host: server.URL}, nil },
	})
	must.Succeed(t, err)
	must.Succeed(t, p.IndexField(t.Context(), &corev1.Namespace{}, "phase", func(client.Object) []string { return nil }))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Start(ctx, &engagements{calls: map[string]context.Context{}}) }()
	<-asked
	got := make(chan error, 1)
	go func() {
		_, err := p.Get(ctx, "silent")
		got <- err
	}()
	select {
	case err := <-got:
		if !errors.Is(err, multicluster.ErrClusterNotFound) {
			t.Errorf("a cluster that is not engaged gives %v", err)
		}
		hub.polled(t)
	case <-time.After(10 * time.Second):
		t.Error("Get waits for an API server")
	}
	cancel()
	close(speaks)
	must.Succeed(t, <-ended)
}
