// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/api"
)

// The API servers of clusters are not there unless the hub is told to, and then for those with the permission alone.
func TestClustersProxyIsOffAndForFew(t *testing.T) {
	keys := []api.Key{
		{Name: "admin", AllTeams: true, AllNamespaces: true, Scopes: []api.Scope{api.ScopeAdmin}},
		{Name: "claim", AllTeams: true, AllNamespaces: true, Scopes: []api.Scope{api.ScopeClaim}},
		{Name: "team", Team: "red", AllNamespaces: true, Scopes: []api.Scope{api.ScopeAdmin}},
		{Name: "namespace", AllTeams: true, Namespaces: []string{"a"}, Scopes: []api.Scope{api.ScopeAdmin}},
	}
	for _, on := range []bool{false, true} {
		o := testOptions(t)
		o.apiKeysFile, o.clustersProxy = filepath.Join(t.TempDir(), "keys.yaml"), on
		tokens, file := map[string]string{"none": "", "wrong": "atoll_wrong"}, []byte("keys:\n")
		for _, key := range keys {
			token, entry, err := api.NewToken(key)
			must.Succeed(t, err)
			tokens[key.Name] = token
			file = append(file, bytes.TrimPrefix(entry, []byte("keys:\n"))...)
		}
		must.Succeed(t, os.WriteFile(o.apiKeysFile, file, 0o600))
		h := start(t, o)
		for name, c := range map[string]struct {
			code int
			says string
		}{
			"admin":     {http.StatusServiceUnavailable, "cluster east is not connected"},
			"claim":     {http.StatusForbidden, "lacks the permission to create clusters/proxy"},
			"team":      {http.StatusForbidden, "needs all teams and all namespaces"},
			"namespace": {http.StatusForbidden, "needs all teams and all namespaces"},
			"none":      {http.StatusUnauthorized, "Authorization"},
			"wrong":     {http.StatusUnauthorized, "not known"},
		} {
			if !on && c.code != http.StatusUnauthorized {
				c.code, c.says = http.StatusNotFound, "there is no /v1/clusters/east/proxy/version"
			}
			code, body := call(t, http.MethodGet, "http://"+h.api+"/v1/clusters/east/proxy/version", tokens[name], "")
			if code != c.code || !strings.Contains(body, c.says) {
				t.Errorf("on %t, %s: %d %s", on, name, code, body)
			}
		}
	}
	open := testOptions(t)
	open.clustersProxy = true
	if err := open.validate(); err == nil || !strings.Contains(err.Error(), "--clusters-proxy") {
		t.Errorf("a hub without credentials: %v", err)
	}
}
