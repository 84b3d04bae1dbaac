// SPDX-License-Identifier: Apache-2.0

package signin

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
)

// issuer gives a new refresh token for each use, and ends a sign-in whose refresh token is used twice, as RFC 9700 advises.
type issuer struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu      sync.Mutex
	refresh string // the one that is good; empty: the sign-in has ended
	renewed int
	down    int // the status of each response; 0: it is up

	renewing func() // called before a renewal is told; may be nil
}

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(t, err)
	i := &issuer{key: key, refresh: "refresh-0"}
	mux := http.NewServeMux()
	show := func(w http.ResponseWriter, code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		show(w, 200, map[string]any{
			"issuer": i.URL, "token_endpoint": i.URL + "/token", "authorization_endpoint": i.URL + "/auth", "jwks_uri": i.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		show(w, 200, map[string]any{"keys": []any{map[string]string{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one", "n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
			"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
		}}})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		switch {
		case i.down != 0:
			show(w, i.down, map[string]string{"error": "temporarily_unavailable"})
			return
		case i.refresh == "" || r.FormValue("refresh_token") != i.refresh:
			i.refresh = ""
			show(w, 400, map[string]string{"error": "invalid_grant"})
			return
		}
		i.renewed++
		i.refresh = fmt.Sprintf("refresh-%d", i.renewed)
		if i.renewing != nil {
			i.renewing()
		}
		show(w, 200, map[string]any{
			"access_token": "a", "token_type": "Bearer", "refresh_token": i.refresh, "id_token": i.token(time.Now().Add(time.Hour)),
		})
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) token(expires time.Time) string {
	part := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(map[string]string{"alg": "RS256", "kid": "one"}) + "." + part(map[string]any{
		"iss": i.URL, "aud": "atollctl", "sub": "alice", "exp": expires.Unix(), "iat": time.Now().Unix(), "jti": rand.Text(),
	})
	sum := sha256.Sum256([]byte(text))
	signature, _ := rsa.SignPKCS1v15(nil, i.key, crypto.SHA256, sum[:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func (i *issuer) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.renewed
}

// Many processes that find an ended token at one time renew it once, and all get the new one; because each of them locks the file by
// itself. A
// refresh token is not lost while the issuer is away, and the one that it gave last is what is kept.
func TestATokenIsRenewedOnce(t *testing.T) {
	i := startIssuer(t)
	settings := Settings{Issuer: i.URL, ClientID: "atollctl"}
	dir := t.TempDir()
	expire := func(refresh string) {
		t.Helper()
		must.Succeed(t, NewStore(dir, "prod").Save(&Tokens{
			Issuer: i.URL, ClientID: "atollctl", ID: i.token(time.Now()), Expires: time.Now(), Refresh: refresh,
		}))
	}
	for round := 1; round <= 3; round++ {
		expire(fmt.Sprintf("refresh-%d", round-1))
		tokens := make([]string, 8)
		var group sync.WaitGroup
		for n := range tokens {
			group.Go(func() {
				var err error
				if tokens[n], err = NewStore(dir, "prod").Token(t.Context(), settings); err != nil {
					t.Errorf("process %d in round %d: %v", n, round, err)
				}
			})
		}
		group.Wait()
		for n, token := range tokens {
			if token == "" || token != tokens[0] {
				t.Errorf("process %d in round %d has another token", n, round)
			}
		}
		if got := i.count(); got != round {
			t.Errorf("%d renewals after round %d", got, round)
		}
	}
	kept, err := NewStore(dir, "prod").Load(settings)
	must.Succeed(t, err)
	if kept.Refresh != "refresh-3" {
		t.Errorf("the refresh token that is kept is %q, want the last one", kept.Refresh)
	}
	if info, err := os.Stat(NewStore(dir, "prod").path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}

	expire("refresh-3")
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusRequestTimeout} {
		i.mu.Lock()
		i.down = status
		i.mu.Unlock()
		if _, err := NewStore(dir, "prod").Token(t.Context(), settings); err == nil || errors.Is(err, ErrEnded) {
			t.Errorf("while the issuer responds with %d: %v, want an error that does not end the sign-in", status, err)
		}
	}
	i.mu.Lock()
	i.down = 0
	i.mu.Unlock()
	if _, err := NewStore(dir, "prod").Token(t.Context(), settings); err != nil {
		t.Errorf("after it came back: %v", err)
	}
	expire("refresh-0") // of a thief, or a copy
	if _, err := NewStore(dir, "prod").Token(t.Context(), settings); !errors.Is(err, ErrEnded) {
		t.Errorf("a refresh token that was used: %v, want %v", err, ErrEnded)
	}
}

// A call that ends while its token is renewed does not lose the refresh token, which is good once.
func TestARenewalOutlastsItsCall(t *testing.T) {
	i := startIssuer(t)
	settings, store := Settings{Issuer: i.URL, ClientID: "atollctl"}, NewStore(t.TempDir(), "prod")
	must.Succeed(t, store.Save(&Tokens{
		Issuer: i.URL, ClientID: "atollctl", ID: i.token(time.Now()), Expires: time.Now(), Refresh: "refresh-0",
	}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	i.renewing = cancel
	if _, err := store.Token(ctx, settings); err != nil {
		t.Errorf("the renewal fails: %v", err)
	}
	kept, err := store.Load(settings)
	must.Succeed(t, err)
	if kept.Refresh != "refresh-1" {
		t.Errorf("the refresh token that is kept is %q", kept.Refresh)
	}
}
