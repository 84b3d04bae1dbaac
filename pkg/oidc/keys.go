// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

const (
	fetchEvery   = 10 * time.Minute // if the last fetch succeeded
	retryEvery   = 15 * time.Second // if the last fetch failed
	fetchTimeout = 5 * time.Second  // of one request
	patience     = 3 * time.Second  // of a caller
	keysLast     = 24 * time.Hour   // how long keys remain valid while the issuer does not respond
	maxDocument  = 1 << 20          // bytes that an issuer may send
	maxKeys      = 100
	// Limits on fetches that tokens with unknown keys trigger.
	paceEvery = 10 * time.Second
	paceBurst = 2
)

// errSignature means that no key of its issuer has signed a token.
var errSignature = errors.New("no key of the issuer has signed the token")

// keySet contains an issuer's keys. It implements oidc.KeySet.
type keySet struct {
	issuer     *Issuer
	client     *http.Client
	clock      clock.PassiveClock
	algorithms []jose.SignatureAlgorithm
	pace       *rate.Limiter
	flight     singleflight.Group

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	fetched time.Time // zero: never
	url     string    // of the keys; empty: not found yet
	failure error     // of the last fetch; nil: it succeeded
}

func newKeySet(issuer *Issuer, c clock.PassiveClock) (*keySet, error) {
	client, err := newClient(issuer)
	if err != nil {
		return nil, err
	}
	k := &keySet{issuer: issuer, client: client, clock: c, pace: rate.NewLimiter(rate.Every(paceEvery), paceBurst), url: issuer.KeysURL}
	for _, a := range issuer.Algorithms {
		k.algorithms = append(k.algorithms, jose.SignatureAlgorithm(a))
	}
	return k, nil
}

// newClient returns a client that follows no redirects: an issuer's documents must be at their stated location.
func newClient(issuer *Issuer) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if issuer.CAFile != "" {
		pem, err := os.ReadFile(issuer.CAFile)
		if err != nil {
			return nil, fmt.Errorf("caFile: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("caFile: %s holds no PEM certificate", issuer.CAFile)
		}
	}
	return &http.Client{
		Timeout: fetchTimeout,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1,
			IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxDocument,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// signatureCheck passes the error of VerifySignature around the library, which keeps only its text.
type signatureCheck struct{ err error }

type signatureCheckKey struct{}

// VerifySignature implements oidc.KeySet.
func (k *keySet) VerifySignature(ctx context.Context, token string) (payload []byte, err error) {
	if check, ok := ctx.Value(signatureCheckKey{}).(*signatureCheck); ok {
		defer func() { check.err = err }()
	}
	signed, err := jose.ParseSigned(token, k.algorithms)
	if err != nil || len(signed.Signatures) != 1 {
		return nil, errSignature
	}
	if payload, err := k.verify(signed); err == nil {
		return payload, nil
	}
	if err := k.await(ctx); err != nil {
		return nil, err
	}
	return k.verify(signed)
}

func (k *keySet) verify(signed *jose.JSONWebSignature) ([]byte, error) {
	k.mu.Lock()
	keys, fetched, failure := k.keys, k.fetched, k.failure
	k.mu.Unlock()
	if fetched.IsZero() || k.clock.Since(fetched) > keysLast {
		return nil, &unreachable{k.issuer.URL, failure}
	}
	id := signed.Signatures[0].Header.KeyID
	for i := range keys {
		if id != "" && keys[i].KeyID != id {
			continue
		}
		if payload, err := signed.Verify(&keys[i]); err == nil {
			return payload, nil
		}
	}
	if failure != nil { // a new key may have signed it
		return nil, &unreachable{k.issuer.URL, failure}
	}
	return nil, errSignature
}

// unreachable means that the keys of an issuer could not be fetched.
type unreachable struct {
	issuer string
	cause  error
}

func (u *unreachable) Error() string {
	if u.cause == nil {
		return fmt.Sprintf("the keys of %s have not been fetched yet", u.issuer)
	}
	return fmt.Sprintf("the keys of %s cannot be fetched: %v", u.issuer, u.cause)
}

func (u *unreachable) Unwrap() error { return u.cause }

// await starts a fetch if the rate limit allows it, and waits for the running fetch.
func (k *keySet) await(ctx context.Context) error {
	done := k.flight.DoChan("keys", func() (any, error) {
		if !k.pace.AllowN(k.clock.Now(), 1) {
			return nil, nil // use the known keys
		}
		// A caller that leaves must not end the fetch for which others wait.
		return nil, k.fetch(context.WithoutCancel(ctx))
	})
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-done:
		return nil // verify returns the error
	case <-limit.Done():
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &unreachable{k.issuer.URL, errors.New("it does not respond")}
	}
}

// Refresh fetches the keys and discovers their location again, regardless of the rate limit.
func (k *keySet) Refresh(ctx context.Context) error {
	if k.issuer.KeysURL == "" {
		k.mu.Lock()
		k.url = ""
		k.mu.Unlock()
	}
	_, err, _ := k.flight.Do("keys", func() (any, error) { return nil, k.fetch(ctx) })
	return err
}

func (k *keySet) fetch(ctx context.Context) error {
	k.mu.Lock()
	where := k.url
	k.mu.Unlock()
	keys, where, err := k.read(ctx, where)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failure = err; err != nil {
		return err
	}
	k.keys, k.url, k.fetched = keys, where, k.clock.Now()
	return nil
}

func (k *keySet) read(ctx context.Context, where string) ([]jose.JSONWebKey, string, error) {
	if where == "" {
		found, err := k.discover(ctx)
		if err != nil {
			return nil, "", err
		}
		where = found
	}
	var document struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := k.get(ctx, where, &document); err != nil {
		return nil, "", err
	}
	var keys []jose.JSONWebKey
	for _, raw := range document.Keys {
		var key jose.JSONWebKey
		// Ignore keys of unknown kinds, keys for encryption, and private keys.
		if json.Unmarshal(raw, &key) == nil && key.Valid() && key.IsPublic() && key.Use != "enc" {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 || len(keys) > maxKeys {
		return nil, "", fmt.Errorf("%s has %d usable keys, want 1 to %d", where, len(keys), maxKeys)
	}
	return keys, where, nil
}

func (k *keySet) discover(ctx context.Context) (string, error) {
	var document struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := k.get(ctx, strings.TrimSuffix(k.issuer.URL, "/")+"/.well-known/openid-configuration", &document); err != nil {
		return "", err
	}
	if document.Issuer != k.issuer.URL {
		return "", fmt.Errorf("the discovery document is of issuer %.200q, want %q", document.Issuer, k.issuer.URL)
	}
	return document.Keys, checkURL("jwks_uri", document.Keys)
}

// get fetches a JSON document. It sends the token only to hosts that the configuration names.
func (k *keySet) get(ctx context.Context, where string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return fmt.Errorf("asking %s: %w", where, err)
	}
	if k.issuer.TokenFile != "" && (sameHost(where, k.issuer.URL) || sameHost(where, k.issuer.KeysURL)) {
		token, err := os.ReadFile(k.issuer.TokenFile)
		if err != nil {
			return fmt.Errorf("tokenFile: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := k.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading %s: %w", where, err)
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s responds with %s", where, response.Status)
	case len(data) > maxDocument:
		return fmt.Errorf("%s sends more than %d bytes", where, maxDocument)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading %s: %w", where, err)
	}
	return nil
}

func sameHost(a, b string) bool {
	x, errX := url.Parse(a)
	y, errY := url.Parse(b)
	return errX == nil && errY == nil && x.Host != "" && x.Host == y.Host && x.Scheme == y.Scheme
}
