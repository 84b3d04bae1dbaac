// SPDX-License-Identifier: Apache-2.0

package kubeaccess_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/kubeaccess"
	"navix.sh/atoll/pkg/problem"
)

// scripted is an API server in memory; because a real one does not follow a bubble's clock.
type scripted struct {
	allows atomic.Bool // every token is valid, and every permission holds
	silent atomic.Bool // no request gets a response
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.silent.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	var review string
	switch isToken, allows := strings.HasSuffix(r.URL.Path, "/tokenreviews"), s.allows.Load(); {
	case isToken && allows:
		review = `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true,"user":{"username":"ann"}}}`
	case isToken: // as a token that is deleted
		review = `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"error":"invalid bearer token"}}`
	case allows:
		review = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true}}`
	default:
		review = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":false}}`
	}
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(review)), Request: r}, nil
}

// cluster returns a Cluster that asks it, and caches for DefaultTTL.
func (s *scripted) cluster(t *testing.T) *kubeaccess.Cluster {
	t.Helper()
	c, err := kubeaccess.New(kubeaccess.Options{Config: &rest.Config{Host: "http://east", Transport: s}, Log: testlog.New(t)})
	must.Succeed(t, err)
	return c
}

// An allowed result holds for the TTL, a denied one for a third of it. Then the API server is asked again.
func TestAResultIsCachedForItsTimeOnly(t *testing.T) {
	token := func(t *testing.T, c *kubeaccess.Cluster) bool {
		t.Helper()
		_, err := c.Authenticate(t.Context(), "token")
		if errors.Is(err, access.ErrNotMine) {
			return false
		}
		must.Succeed(t, err)
		return true
	}
	permission := func(t *testing.T, c *kubeaccess.Cluster) bool {
		t.Helper()
		grant, err := c.Authorize(t.Context(), &access.Identity{User: "ann"}, access.Exec)
		must.Succeed(t, err)
		return len(grant.Scopes) > 0
	}
	for name, tc := range map[string]struct {
		allowed func(*testing.T, *kubeaccess.Cluster) bool
		first   bool
		cached  time.Duration
	}{
		"a token that is deleted":        {token, true, kubeaccess.DefaultTTL},
		"a token that becomes valid":     {token, false, kubeaccess.DefaultTTL / 3},
		"a permission that is withdrawn": {permission, true, kubeaccess.DefaultTTL},
		"a permission that is granted":   {permission, false, kubeaccess.DefaultTTL / 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{}
				c := s.cluster(t)
				s.allows.Store(tc.first)
				if got := tc.allowed(t, c); got != tc.first {
					t.Fatalf("allowed at first: %t, want %t", got, tc.first)
				}
				s.allows.Store(!tc.first)
				time.Sleep(tc.cached - time.Nanosecond)
				if got := tc.allowed(t, c); got != tc.first {
					t.Errorf("allowed after almost %s: %t, want %t from the cache", tc.cached, got, tc.first)
				}
				time.Sleep(2 * time.Nanosecond)
				if got := tc.allowed(t, c); got == tc.first {
					t.Errorf("allowed after %s: %t, want %t from the API server", tc.cached, got, !tc.first)
				}
			})
		})
	}
}

// A question to an API server that does not respond is UNAVAILABLE after three seconds.
func TestI8ASilentAPIServerIsUnavailableAfterThreeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, who := &scripted{}, &access.Identity{User: "ann"}
		c := s.cluster(t)
		grant, err := c.Authorize(t.Context(), who, access.Exec) // denied for all namespaces: each is asked about
		must.Succeed(t, err)
		s.silent.Store(true)
		for name, ask := range map[string]func() error{
			"a token":      func() error { _, err := c.Authenticate(t.Context(), "token"); return err },
			"a permission": func() error { _, err := c.Authorize(t.Context(), who, access.Logs); return err },
			"a namespace":  func() error { _, err := grant.Ask("default"); return err },
		} {
			began := time.Now()
			if err := ask(); err == nil || problem.FromError(err).Reason != problem.Unavailable {
				t.Errorf("%s: got %v, want UNAVAILABLE", name, err)
			}
			if took := time.Since(began); took != 3*time.Second {
				t.Errorf("%s waited %s, want 3 s", name, took)
			}
		}
		time.Sleep(time.Minute) // until the last request has ended, whatever its limit is
	})
}
