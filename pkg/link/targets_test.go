// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
)

func TestSplitTargets(t *testing.T) {
	got, err := SplitTargets("a:1, b:2,[::1]:3")
	must.Succeed(t, err)
	if diff := cmp.Diff([]string{"a:1", "b:2", "[::1]:3"}, got); diff != "" {
		t.Error(diff)
	}
	for _, list := range []string{"", "a", "a:1,", ":1", "a:1,b"} {
		if _, err := SplitTargets(list); err == nil {
			t.Errorf("%q was accepted", list)
		}
	}
}

func TestChoose(t *testing.T) {
	now := time.Now()
	a, b, c := address{"a:1", "a"}, address{"b:1", "b"}, address{"c:1", "c"}
	last := func(n int64) int64 { return n - 1 }
	for name, test := range map[string]struct {
		all     []address
		avoided map[string]time.Time
		want    address
	}{
		"only one":               {[]address{a}, map[string]time.Time{"a:1": now.Add(time.Hour)}, a},
		"any of those free":      {[]address{a, b, c}, nil, c},
		"none that is avoided":   {[]address{a, b, c}, map[string]time.Time{"b:1": now.Add(time.Second), "c:1": now.Add(time.Second)}, a},
		"avoided no longer":      {[]address{a, b}, map[string]time.Time{"a:1": now.Add(time.Second), "b:1": now}, b},
		"the one avoided least":  {[]address{a, b}, map[string]time.Time{"a:1": now.Add(2 * time.Second), "b:1": now.Add(time.Second)}, b},
		"the first, if the same": {[]address{a, b}, map[string]time.Time{"a:1": now.Add(time.Second), "b:1": now.Add(time.Second)}, a},
	} {
		if got := choose(test.all, test.avoided, now, last); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// A hub of several replicas: a stream that ends moves to another replica, and one that was redirected does so at once.
func TestRunMovesToAnotherReplica(t *testing.T) {
	for name, test := range map[string]struct {
		target  string
		resolve map[string][]string
		ends    error
		within  time.Duration
	}{
		"of a list, when redirected": {"10.0.0.1:1,10.0.0.2:1,10.0.0.3:1", nil, ErrRedirected, MinBackoff},
		"of a name, when redirected": {"hub:1", map[string][]string{"hub": {"10.0.0.1", "10.0.0.2", "10.0.0.3"}}, ErrRedirected, MinBackoff},
		"of a list, when it breaks":  {"10.0.0.1:1,10.0.0.2:1,10.0.0.3:1", nil, errors.New("broken"), time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var dialled []string
				last := time.Now()
				d := Dial{
					Target: test.target, ServerName: "hub", Credentials: &Credentials{good: &material{}}, Clock: clock.RealClock{},
					Log: logr.Discard(),
					Resolve: func(_ context.Context, host string) ([]string, error) {
						return test.resolve[host], nil
					},
					Open: func(_ context.Context, target string) (net.Conn, error) {
						dialled = append(dialled, target)
						return nil, errors.New("no network")
					},
				}
				streams := 0
				must.Succeed(t, Run(ctx, d, func(ctx context.Context, hub federationv1.LinkClient) error {
					if gap := time.Since(last); streams > 0 && gap > test.within {
						t.Errorf("it comes back after %s", gap)
					}
					_, _ = hub.Attach(ctx) // dials
					if streams++; streams == 3 {
						cancel()
					}
					last = time.Now()
					return test.ends
				}))
				seen := map[string]bool{}
				for _, address := range dialled {
					seen[address] = true
				}
				if len(seen) != 3 {
					t.Errorf("three streams were at %v", dialled)
				}
			})
		})
	}
}

func TestTunnelsGoWhereTheStreamIs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dialled := make(chan string, 16)
	d := Dial{
		Target: "10.0.0.1:1,10.0.0.2:1", ServerName: "hub", Credentials: &Credentials{good: &material{}}, Clock: clock.RealClock{},
		Log: logr.Discard(),
		Open: func(_ context.Context, target string) (net.Conn, error) {
			dialled <- target
			return nil, errors.New("no network")
		},
	}
	must.Succeed(t, Run(ctx, d, func(ctx context.Context, hub federationv1.LinkClient) error {
		defer cancel()
		_, _ = hub.Attach(ctx)
		tunnels := d.NewTunnels(hub)
		_, _ = tunnels.Open(ctx, "token")
		return tunnels.Close()
	}))
	if stream, tunnel := <-dialled, <-dialled; stream != tunnel {
		t.Errorf("the stream dialled %s, the tunnel %s", stream, tunnel)
	}
}
