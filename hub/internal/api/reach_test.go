// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/claims"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

// visitors notes who gets as far as a sandbox.
type visitors []string

func (v *visitors) Open(ctx context.Context, _ string, _ *federationv1.ReachCall) (reach.Tunnel, error) {
	*v = append(*v, claims.PrincipalFrom(ctx).Team)
	return nil, problem.New(problem.NotFound, "no sandbox")
}

func TestReachNeedsTheScopeClaim(t *testing.T) {
	for _, c := range []struct {
		scope Scope
		shows bool
		want  int
	}{
		{ScopeClaim, true, http.StatusNotFound}, {ScopeAdmin, true, http.StatusNotFound},
		{ScopeRead, true, http.StatusForbidden}, {ScopeClaim, false, http.StatusUnauthorized},
	} {
		token, entry, err := NewToken(Key{Name: "n", Team: "red", Scopes: []Scope{c.scope}})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "keys.yaml")
		if err := os.WriteFile(path, entry, 0o600); err != nil {
			t.Fatal(err)
		}
		auth, err := NewAuthenticator(path, clock.RealClock{}, logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		reached := &visitors{}
		handler := reach.NewHandler(reached, logr.Discard())
		for _, path := range []string{"/v1/sandboxes/a-east/logs", "/v1/sandboxes/a-east/ports/80/"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			if c.shows {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			auth.HTTP(handler.Match(r)).ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("a key with the scope %s, shown %t, is answered %d, want %d: %s", c.scope, c.shows, w.Code, c.want, w.Body)
			}
		}
		allowed := c.want == http.StatusNotFound
		if allowed != (len(*reached) == 2) || allowed && (*reached)[0] != "red" {
			t.Errorf("with the scope %s, shown %t, these got through: %v", c.scope, c.shows, *reached)
		}
	}
}
