// SPDX-License-Identifier: Apache-2.0

package oidc_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/oidctest"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/oidc"
	"navix.sh/atoll/pkg/problem"
)

func config(issuer string) string {
	return fmt.Sprintf(`
- url: %s
  audiences: [atollctl]
  claims: {user: email}
  prefixes: {user: "dex:", groups: "dex:"}
  teams: [{group: team-red, team: red}, {group: team-blue, team: blue}]
`, issuer)
}

func start(t *testing.T, issuers string) (*oidc.Authenticator, *clocktesting.FakeClock) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "issuers.yaml")
	must.Succeed(t, os.WriteFile(file, []byte("issuers:"+issuers), 0o600))
	clock := clocktesting.NewFakeClock(time.Now())
	a, err := oidc.Open(file, clock, testlog.New(t))
	must.Succeed(t, err)
	return a, clock
}

func reason(err error) problem.Reason {
	if err == nil {
		return ""
	}
	return problem.FromError(err).Reason
}

// One dex serves all the cases that need no other one.
func TestTokensOfDex(t *testing.T) {
	dex := oidctest.Start(t, time.Hour)
	token := dex.Token("alice", oidctest.Client)
	parts := strings.Split(token, ".")
	bare := func(header, payload string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + payload + "."
	}
	var claims map[string]any
	decoded, err := base64.RawURLEncoding.DecodeString(parts[1])
	must.Succeed(t, err)
	must.Succeed(t, json.Unmarshal(decoded, &claims))
	claims["email"] = "admin@example.com"
	changed, err := json.Marshal(claims)
	must.Succeed(t, err)
	for name, tc := range map[string]struct {
		token  string
		offset time.Duration // of the hub's clock
		want   string        // part of the error; empty: valid
		reason problem.Reason
	}{
		"valid":                    {token: token},
		"a minute behind":          {token: token, offset: -time.Minute},
		"a minute past the end":    {token: token, offset: time.Hour + time.Minute},
		"ten minutes behind":       {token: token, offset: -10 * time.Minute, want: "are the clocks right"},
		"ten minutes past the end": {token: token, offset: time.Hour + 10*time.Minute, want: "expired"},
		"for another client":       {token: dex.Token("alice", oidctest.OtherClient), want: "it is for"},
		"without an algorithm":     {token: bare(`{"alg":"none"}`, parts[1]), want: "malformed"},
		"by a shared secret":       {token: bare(`{"alg":"HS256"}`, parts[1]) + "c2ln", want: "malformed"},
		"other claims":             {token: parts[0] + "." + base64.RawURLEncoding.EncodeToString(changed) + "." + parts[2], want: "no key"},
		"no signature":             {token: parts[0] + "." + parts[1] + ".", want: "no key"},
		"too large":                {token: token + strings.Repeat("a", 16<<10), want: "at most 16384"},
	} {
		t.Run(name, func(t *testing.T) {
			a, clock := start(t, config(dex.Issuer))
			clock.SetTime(clock.Now().Add(tc.offset))
			who, err := a.Authenticate(t.Context(), tc.token)
			if tc.want == "" {
				must.Succeed(t, err)
				if who.User != "dex:alice@example.com" || who.Team != "red" || who.Kind != access.KindOIDC || !who.AllNamespaces ||
					!slices.Equal(who.Groups, []string{"dex:team-red", "dex:atoll-admins"}) {
					t.Errorf("got %+v", who)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || reason(err) != problem.Unauthenticated {
				t.Errorf("got %v, want UNAUTHENTICATED with %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), parts[2][:20]) {
				t.Errorf("the error has the token: %v", err)
			}
		})
	}
}

func TestTokensOfOthersAreNotMine(t *testing.T) {
	a, _ := start(t, config("https://issuer.invalid"))
	payload := base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://evil.invalid"}`))
	for _, token := range []string{"", "atoll_abcdef", "a.b.c", "e30." + payload + ".c2ln"} {
		began := time.Now()
		if _, err := a.Authenticate(t.Context(), token); !errors.Is(err, access.ErrNotMine) {
			t.Errorf("%q: got %v", token, err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%q took %s: it must not use the network", token, took)
		}
	}
}

func TestI14InventedKeysCauseFewFetches(t *testing.T) {
	var fetches atomic.Int32
	dex := oidctest.Start(t, time.Hour)
	target, err := url.Parse(dex.Issuer)
	must.Succeed(t, err)
	pass := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: target.Host})
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fetches.Add(1)
		pass.ServeHTTP(w, r)
	}))
	defer keys.Close()
	a, clock := start(t, config(dex.Issuer)+"  keysURL: "+keys.URL+"/keys\n")
	token := dex.Token("alice", oidctest.Client)
	parts := strings.Split(token, ".")
	flood := func() {
		var group sync.WaitGroup
		for i := range 200 {
			group.Go(func() {
				header := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":"RS256","kid":"invented-%d"}`, i))
				if _, err := a.Authenticate(context.Background(), header+"."+parts[1]+"."+parts[2]); reason(err) != problem.Unauthenticated {
					t.Errorf("an invented key: got %v", err)
				}
			})
		}
		group.Wait()
	}
	flood()
	if n := fetches.Load(); n < 1 || n > 2 {
		t.Errorf("200 invented keys caused %d fetches, want 1 or 2", n)
	}
	if _, err := a.Authenticate(t.Context(), token); err != nil {
		t.Errorf("during the flood: %v", err)
	}
	// Of a rotation a hub that was flooded learns as soon as it may ask again.
	dex.Stop()
	dex.Start()
	token = dex.Token("alice", oidctest.Client)
	clock.Step(11 * time.Second)
	if _, err := a.Authenticate(t.Context(), token); err != nil {
		t.Errorf("after a rotation: %v", err)
	}
	if _, err := a.Authenticate(t.Context(), strings.Join(parts, ".")); reason(err) != problem.Unauthenticated {
		t.Errorf("the token of a key that is gone: got %v", err)
	}
}

// An issuer that accepts connections and says nothing delays no caller of another one, and its own callers for seconds at most.
func TestI7AnIssuerThatIsAwayDelaysNoOther(t *testing.T) {
	listener := testserver.Listen(t)
	defer listener.Close()
	away := "http://" + listener.Addr().String()
	dex := oidctest.Start(t, time.Hour)
	a, clock := start(t, config(dex.Issuer)+fmt.Sprintf(`
- url: %s
  audiences: [atollctl]
  prefixes: {user: "away:", groups: "away:"}
`, away))
	token := dex.Token("bob", oidctest.Client)
	parts := strings.Split(token, ".")
	payload := base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"` + away + `","aud":"atollctl"}`))
	waited := make(chan error, 50)
	began := time.Now()
	for range cap(waited) {
		go func() {
			_, err := a.Authenticate(context.Background(), parts[0]+"."+payload+"."+parts[2])
			waited <- err
		}()
	}
	if who, err := a.Authenticate(t.Context(), token); err != nil || who.Team != "blue" {
		t.Errorf("the other issuer's: %+v, %v", who, err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the other issuer's caller waited %s", took)
	}
	for range cap(waited) {
		if err := <-waited; reason(err) != problem.Unavailable {
			t.Errorf("a caller of the issuer that is away: got %v", err)
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("its callers waited %s", took)
	}
	// Keys that are known outlast their issuer by a day.
	dex.Stop()
	for offset, want := range map[time.Duration]problem.Reason{time.Minute: "", 25 * time.Hour: problem.Unavailable} {
		clock.SetTime(time.Now().Add(offset))
		if _, err := a.Authenticate(t.Context(), token); err == nil && want != "" || err != nil && reason(err) != want {
			t.Errorf("%s after: got %v, want %q", offset, err, want)
		}
	}
}

func TestKeysAreFetchedAgain(t *testing.T) {
	dex := oidctest.Start(t, time.Hour)
	a, clock := start(t, config(dex.Issuer))
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { _ = a.Run(ctx) })
	defer group.Wait()
	defer cancel()
	old := dex.Token("carol", oidctest.Client)
	if who, err := a.Authenticate(t.Context(), old); err != nil || who.Team != "" {
		t.Fatalf("got %+v, %v", who, err)
	}
	dex.Stop()
	dex.Start()
	// No token of a new key comes, and still the old one is refused before long.
	wait.For(t, 30*time.Second, "the key that is gone to be refused", func(ctx context.Context) error {
		clock.SetTime(time.Now().Add(11 * time.Minute))
		_, err := a.Authenticate(ctx, old)
		clock.SetTime(time.Now())
		return wait.If(err != nil && reason(err) == problem.Unauthenticated && strings.Contains(err.Error(), "no key"), err)
	})
}

func TestBadConfigurationNamesWhatIsValid(t *testing.T) {
	issuer := "\n- {url: https://a.example, audiences: [x]}\n"
	for name, tc := range map[string]struct{ file, want string }{
		"none":           {" []", "want 1 to 20"},
		"unknown field":  {"\n- {url: https://a.example, audience: x}", "audience"},
		"plain text":     {"\n- {url: http://a.example, audiences: [x]}", "want https://HOST"},
		"no audience":    {"\n- {url: https://a.example}", "audiences: want at least one"},
		"none algorithm": {"\n- {url: https://a.example, audiences: [x], algorithms: [none]}", `"none" is not valid`},
		"HMAC":           {"\n- {url: https://a.example, audiences: [x], algorithms: [HS256]}", `"HS256" is not valid`},
		"skew":           {"\n- {url: https://a.example, audiences: [x], clockSkew: 1h}", "want 0s to 10m"},
		"reserved":       {"\n- {url: https://a.example, audiences: [x], prefixes: {groups: 'system:'}}", "Kubernetes' own"},
		"same names":     {issuer + "- {url: https://b.example, audiences: [x], prefixes: {user: 'b:', groups: 'b:'}}", "want prefixes"},
		"twice":          {issuer + "- {url: https://a.example, audiences: [x]}", "are both https://a.example"},
		"any team": {"\n- {url: https://a.example, audiences: [x], prefixes: {user: 'a:', groups: 'a:'}, claims: {team: t}}\n" +
			"- {url: https://b.example, audiences: [x], prefixes: {user: 'b:', groups: 'b:'}}", "allowedTeams: is missing"},
		"team without group": {"\n- {url: https://a.example, audiences: [x], teams: [{team: t}]}", "want both"},
		"claims of accounts": {"\n- {url: https://a.example, audiences: [x], kubernetes: true, claims: {user: x}}", "want none"},
		"token in the URL":   {"\n- {url: 'https://u:p@a.example', audiences: [x]}", "want https://HOST"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := oidc.Parse([]byte("issuers:" + tc.file)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}
