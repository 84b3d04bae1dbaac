// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
)

const digest = "4e3f16df4d8f17fa552f4a34200621b97709be5adc8c9bb57f5722815f059772"

func TestParseKeys(t *testing.T) {
	for name, tc := range map[string]struct{ file, want string }{
		"good": {"keys: [{name: a, sha256: " + digest +
			", scopes: [read, claim], team: t, user: u, namespaces: [default], expires: 2030-01-02T03:04:05Z}]", ""},
		"empty":             {"", "no keys"},
		"no YAML":           {"keys: [", "reading keys"},
		"no line keys":      {"- {name: a, sha256: " + digest + ", scopes: [read]}", "want a list of entries below the line `keys:`"},
		"unknown key":       {"keys: [{name: a, sha256: " + digest + ", scopes: [read], tem: t}]", "tem"},
		"no name":           {"keys: [{sha256: " + digest + ", scopes: [read]}]", "name: is missing"},
		"a token, not hash": {"keys: [{name: a, sha256: atoll_secret, scopes: [read]}]", "sha256: want 64 hex digits"},
		"no scopes":         {"keys: [{name: a, sha256: " + digest + "}]", "scopes: want at least one"},
		"unknown scope":     {"keys: [{name: a, sha256: " + digest + ", scopes: [write]}]", `"write" is not one of`},
		"no namespace": {"keys: [{name: a, sha256: " + digest + ", scopes: [read], namespaces: [a_b]}]",
			`"a_b" is not valid, want a DNS label`},
		"a team and all": {"keys: [{name: a, sha256: " + digest + ", scopes: [read], team: t, allTeams: true}]",
			"allTeams: true beside a team"},
		"namespaces and all": {"keys: [{name: a, sha256: " + digest + ", scopes: [read], namespaces: [n], allNamespaces: true}]",
			"allNamespaces: true beside"},
		"bad time": {"keys: [{name: a, sha256: " + digest + ", scopes: [read], expires: tomorrow}]", "tomorrow"},
		"twice the name": {"keys: [{name: a, sha256: " + digest + ", scopes: [read]}, {name: a, sha256: " + strings.ToUpper(digest) +
			", scopes: [read]}]", "same name a"},
	} {
		_, err := ParseKeys([]byte(tc.file))
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "atoll_secret") {
			t.Errorf("%s: the error repeats a secret: %v", name, err)
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte("keys: [{name: a, sha256: " + digest + ", scopes: [read]}]"))
	f.Add([]byte("keys:\n- name: a\n  sha256: " + digest + "\n  scopes: [admin]\n  expires: 2030-01-02T03:04:05Z\n"))
	f.Add([]byte("{keys: null}"))
	f.Add([]byte("keys: [{name: a, name: b}]"))
	f.Add([]byte("keys: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := ParseKeys(data)
		if err != nil {
			return
		}
		if len(keys.keys) == 0 || keys.find("") != nil || keys.find(TokenPrefix) != nil {
			t.Errorf("%q lets the empty token in, or no caller", data)
		}
		for _, k := range keys.keys {
			if k.Name == "" || len(k.digest) != 32 || len(k.Scopes) == 0 {
				t.Errorf("%q gives the key %+v", data, k)
			}
		}
	})
}

// Without the token no header is admitted, to any method.
func FuzzAdmit(f *testing.F) {
	token, auth := authOf(f, Key{Name: "all", Scopes: []Scope{ScopeAdmin}, AllTeams: true, AllNamespaces: true})
	for _, header := range []string{"", "Bearer", "bearer " + TokenPrefix, "Bearer " + token[:len(token)-1], "Basic YTpi", "Bearer \x00",
		"Bearer  "} {
		f.Add("/atoll.sandbox.v1.Sandboxes/CreateSandbox", header)
		f.Add("", header)
	}
	f.Fuzz(func(t *testing.T, method, header string) {
		for _, values := range [][]string{nil, {header}, {header, header}} {
			if caller, err := auth.Admit(t.Context(), method, values); err == nil && !strings.Contains(header, token) {
				t.Errorf("%q is admitted to %q as %q", values, method, caller)
			}
		}
		if _, err := auth.Admit(t.Context(), "", []string{"Bearer " + token}); err != nil {
			t.Errorf("the token is not admitted: %v", err)
		}
	})
}

func TestTokens(t *testing.T) {
	token, entry, err := NewToken(Key{Name: "ci", Scopes: []Scope{ScopeRead}, Team: "t"})
	must.Succeed(t, err)
	if strings.Contains(string(entry), token) || !strings.HasPrefix(token, TokenPrefix) || len(token) < 50 {
		t.Errorf("token %q, entry %s", token, entry)
	}
	keys, err := ParseKeys(entry)
	must.Succeed(t, err)
	if k := keys.find(token); k == nil || k.Team != "t" {
		t.Errorf("found %+v", k)
	}
	if k := keys.find(token + "x"); k != nil {
		t.Errorf("another token found %+v", k)
	}
}

// The scopes of a key are built-in roles within its bounds: what existing keys may do stays as it was.
func TestScopesAreRoles(t *testing.T) {
	sandboxes := func(verb string) access.Permission { return access.Permission{Resource: access.Sandboxes, Verb: verb} }
	look, create := sandboxes("get"), sandboxes("create")
	drain := access.Permission{Resource: access.Clusters, Verb: "drain"}
	for _, tc := range []struct {
		has []Scope
		can []access.Permission
		not []access.Permission
	}{
		{[]Scope{ScopeRead}, []access.Permission{look}, []access.Permission{create, access.Exec, access.Logs, access.Ports, drain}},
		{[]Scope{ScopeClaim}, []access.Permission{look, create, access.Exec, access.Logs, access.Ports}, []access.Permission{drain}},
		{[]Scope{ScopeRead, ScopeClaim}, []access.Permission{look, create, access.Exec}, []access.Permission{drain}},
		{[]Scope{ScopeAdmin}, []access.Permission{look, create, access.Exec, access.Logs, access.Ports, drain}, nil},
	} {
		who := (&Key{Name: "n", Scopes: tc.has}).Identity()
		for _, p := range tc.can {
			if (*access.Policy)(nil).Grant(who, p).Empty() {
				t.Errorf("%v may not %s", tc.has, p)
			}
		}
		for _, p := range tc.not {
			if !(*access.Policy)(nil).Grant(who, p).Empty() {
				t.Errorf("%v may %s", tc.has, p)
			}
		}
	}
}

// A key permits what it names. A call that concerns others needs a key that covers them as well.
func TestCallsNeedAKeyForWhomTheyConcern(t *testing.T) {
	admin := []Scope{ScopeAdmin}
	for name, key := range map[string]Key{
		"all":         {Scopes: admin, AllTeams: true, AllNamespaces: true},
		"a namespace": {Scopes: admin, AllTeams: true, Namespaces: []string{"n"}},
		"a team":      {Scopes: admin, Team: "t", AllNamespaces: true},
		"a user":      {Scopes: admin, AllTeams: true, User: "u", AllNamespaces: true},
		"nothing":     {Scopes: admin},
		"claims":      {Scopes: []Scope{ScopeClaim}, AllTeams: true, AllNamespaces: true},
		"shown":       {Scopes: []Scope{ScopeRead}, AllTeams: true, AllNamespaces: true},
	} {
		key.Name = name
		token, auth := authOf(t, key)
		for method, keys := range map[string]string{
			"Clusters/DrainCluster": "all", "Clusters/UndrainCluster": "all", "Clusters/ForgetCluster": "all", "Hub/BackupHub": "all",
			"Hub/AcceptLoss": "all", "Templates/PutTemplate": "all", "Later/Unknown": "all",
			"Envs/PutEnv": "all, a namespace", "Envs/DeleteEnv": "all, a namespace", "Envs/PlanEnv": "all, a namespace",
			"Envs/RefreshEnv":         "all, a namespace",
			"Sandboxes/CreateSandbox": "all, a namespace, a team, a user, nothing, claims",
			"Claims/CancelClaim":      "all, a namespace, a team, a user, nothing, claims",
			"Sandboxes/GetSandbox":    "all, a namespace, a team, a user, nothing, claims, shown",
			"Clusters/ListClusters":   "all, a namespace, a team, a user, nothing, claims, shown",
		} {
			_, err := auth.Admit(t.Context(), "/atoll.sandbox.v1."+method, []string{"Bearer " + token})
			if want := slices.Contains(strings.Split(keys, ", "), name); want != (err == nil) || err != nil &&
				problem.FromError(err).Reason != problem.Forbidden {
				t.Errorf("%s with a key for %s: %v, want it let in: %t", method, name, err, want)
			}
		}
	}
}

// TestKeysAreTakenUp changes the file under a running authenticator.
func TestKeysAreTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "keys.yaml")
		mint := func(k Key) (string, []byte) {
			k.Name, k.Scopes = "n", []Scope{ScopeRead}
			token, entry, err := NewToken(k)
			must.Succeed(t, err)
			return token, entry
		}
		write := func(data []byte) {
			must.Succeed(t, os.WriteFile(path, data, 0o600))
			time.Sleep(rereadEvery + time.Second)
			synctest.Wait()
		}
		soon := time.Now().Add(time.Hour)
		first, firstEntry := mint(Key{Team: "t", Expires: &soon})
		second, secondEntry := mint(Key{Team: "s"})
		if _, err := newAuthenticator(path, clock.RealClock{}, testlog.New(t)); err == nil {
			t.Fatal("began without a file")
		}
		must.Succeed(t, os.WriteFile(path, firstEntry, 0o600))
		a, err := newAuthenticator(path, clock.RealClock{}, testlog.New(t))
		must.Succeed(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		running := make(chan error, 1)
		go func() { running <- a.Run(ctx) }()
		knows := func(token string) problem.Reason {
			md := metadata.Pairs("authorization", "Bearer "+token)
			who, err := a.authenticate(metadata.NewIncomingContext(t.Context(), md), access.OfMethod(sandboxv1.Sandboxes_GetSandbox_FullMethodName))
			if err == nil {
				if expires := who.Expires; token == first && (expires == nil || !expires.Equal(soon)) {
					t.Errorf("the caller is told that its key ends at %v, want %v", expires, soon)
				}
				return ""
			}
			return problem.FromError(err).Reason
		}
		if knows(first) != "" || knows(second) != problem.Unauthenticated {
			t.Error("the first file is not what counts")
		}
		write([]byte("keys: [")) // half written
		if knows(first) != "" {
			t.Error("a broken file locked every caller out")
		}
		write(secondEntry)
		if knows(first) != problem.Unauthenticated || knows(second) != "" {
			t.Error("the second file was not taken up")
		}
		write(firstEntry)
		time.Sleep(time.Hour)
		if knows(first) != problem.Unauthenticated {
			t.Error("an expired key opens")
		}
		cancel()
		if err := <-running; err != nil {
			t.Error(err)
		}
	})
}

func TestBearer(t *testing.T) {
	for header, ok := range map[string]bool{
		"Bearer x": true, "bearer  x": true, "Basic x": false, "x": false, "": false,
	} {
		token, err := bearer([]string{header})
		if ok != (err == nil) || ok && token != "x" {
			t.Errorf("%q: %q %v", header, token, err)
		}
	}
	for _, values := range [][]string{nil, {"Bearer x", "Bearer y"}} {
		if _, err := bearer(values); err == nil {
			t.Errorf("%q: one token is wanted", values)
		}
	}
}
