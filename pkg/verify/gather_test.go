// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// apiServer holds the objects of a snapshot of a cluster, and fails reads with failing's error.
func apiServer(t *testing.T, c *Cluster, failing func() error) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: stateName},
			Data: map[string]string{incarnationKey: "3"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: leaseName},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: new("worker"), LeaseDurationSeconds: new(int32(15))}},
	}
	for i := range c.Pods {
		objects = append(objects, &c.Pods[i])
	}
	for i := range c.Envs {
		objects = append(objects, &c.Envs[i])
	}
	for i := range c.Pools {
		objects = append(objects, &c.Pools[i])
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := failing(); err != nil {
				return err
			}
			return next.List(ctx, list, opts...)
		},
	}).Build()
}

func never() error { return nil }

func TestSettle(t *testing.T) {
	settle := func(t *testing.T, c Cluster, failing func() error) (r Result, took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			f := &Federation{Clusters: []Reader{{ID: "west", Client: apiServer(t, &c, failing)}}}
			r = f.Settle(t.Context(), 30*time.Second)
			took = time.Since(begin)
		})
		return r, took
	}
	t.Run("clean after two looks", func(t *testing.T) {
		r, took := settle(t, healthy().Clusters[1], never)
		if r.Err() != nil || r.Looks != 2 || took > time.Second {
			t.Errorf("%v after %d looks and %s", r.Err(), r.Looks, took)
		}
	})
	t.Run("wrong if it stands", func(t *testing.T) {
		c := healthy().Clusters[1]
		c.Pods = nil
		r, took := settle(t, c, never)
		want(t, r.Findings, "I8: env default/py in west: its segment says py-west idle=0 running=1 replicas=1")
		if took < 30*time.Second || took > 31*time.Second || r.Err() == nil {
			t.Errorf("took %s: %v", took, r.Err())
		}
	})
	t.Run("an API server that comes back", func(t *testing.T) {
		looks := 0
		r, _ := settle(t, healthy().Clusters[1], func() error {
			looks++
			return wait.If(looks >= 4, "etcd is not ready")
		})
		if r.Err() != nil {
			t.Error(r.Err())
		}
	})
	t.Run("an API server that does not", func(t *testing.T) {
		r, took := settle(t, healthy().Clusters[1], func() error { return errors.New("no route to host") })
		if !slices.Equal(r.Blind, []string{"cluster west: listing Pods: no route to host"}) {
			t.Errorf("blind to %q", r.Blind)
		}
		if took < blindPatience || took > blindPatience+time.Second || len(r.Findings) > 0 {
			t.Errorf("took %s and found %v", took, r.Findings)
		}
	})
}

func TestScrape(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			_, _ = w.Write([]byte("# TYPE atoll_hub_clusters gauge\natoll_hub_clusters{health=\"a\"} 2\natoll_hub_clusters{health=\"b\"} 3\n" +
				"# TYPE go_goroutines gauge\ngo_goroutines 12\n# TYPE x histogram\nx_bucket{le=\"+Inf\"} 1\nx_sum 1\nx_count 1\n"))
		case "/other":
			_, _ = w.Write([]byte("# TYPE go_goroutines gauge\ngo_goroutines 12\n"))
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	values, err := scrape(t.Context(), server.URL+"/metrics")
	if err != nil || values["atoll_hub_clusters"] != 5 || values["go_goroutines"] != 12 || len(values) != 2 {
		t.Errorf("%v %v", values, err)
	}
	if _, err := scrape(t.Context(), server.URL+"/other"); !errors.Is(err, errNoMetrics) {
		t.Errorf("of another program: %v", err)
	}
	if _, err := scrape(t.Context(), server.URL+"/nothing"); err == nil {
		t.Error("a page that is not there was read")
	}
}

func TestServersClock(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(10*time.Minute).UTC().Format(http.TimeFormat))
	}))
	defer server.Close()
	date := &dateReader{}
	client := &http.Client{Transport: date.watch(server.Client().Transport)}
	response, err := client.Get(server.URL)
	must.Succeed(t, err)
	response.Body.Close()
	if off := date.clock().Offset - 10*time.Minute; off.Abs() > 5*time.Second {
		t.Errorf("the clock is off by %s, want 10 min", date.clock().Offset)
	}
	if c := (*dateReader)(nil).clock(); !c.Now.IsZero() {
		t.Errorf("a clock that is not read says %v", c)
	}
}

// A lease's age is by the API server's clock, whatever the holder's clock wrote.
func TestLeaseOf(t *testing.T) {
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("w"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: now.Add(time.Hour)},
	}}
	if got := leaseOf(lease, now); got.Age != nil || got.Holder != "w" || got.Duration != 15*time.Second {
		t.Errorf("without managed fields: %+v", got)
	}
	lease.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: now.Add(-time.Hour)}},
		{Time: &metav1.Time{Time: now.Add(-40 * time.Second)}}, {}}
	got := leaseOf(lease, now)
	if got.Age == nil || *got.Age != 40*time.Second || (&Cluster{Lease: got}).Leads() {
		t.Errorf("%+v", got)
	}
	if got := leaseOf(lease, time.Time{}); got.Age != nil {
		t.Errorf("without a clock: %+v", got)
	}
}
