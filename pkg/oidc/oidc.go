// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/wallclock"
)

// maxToken is the maximum size of a token in bytes.
const maxToken = 16 << 10

// Authenticator authenticates callers by the tokens of its issuers. It implements access.Authenticator.
type Authenticator struct {
	issuers map[string]*issuer
	clock   clock.WithTicker
	log     logr.Logger
}

type issuer struct {
	*Issuer
	keys     *keySet
	verifier *oidc.IDTokenVerifier
}

// Open reads a file of issuers. It does not contact them yet.
func Open(path string, c clock.WithTicker, log logr.Logger) (*Authenticator, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("OIDC issuers: %w", err)
	}
	config, err := Parse(data)
	if err == nil {
		var a *Authenticator
		if a, err = New(config, c, log); err == nil {
			return a, nil
		}
	}
	return nil, fmt.Errorf("OIDC issuers, file %s: %w", path, err)
}

// New returns an Authenticator for a configuration that Parse returned.
func New(config *Config, c clock.WithTicker, log logr.Logger) (*Authenticator, error) {
	a := &Authenticator{issuers: map[string]*issuer{}, clock: c, log: log}
	for i := range config.Issuers {
		conf := &config.Issuers[i]
		keys, err := newKeySet(conf, c)
		if err != nil {
			return nil, fmt.Errorf("issuer %s: %w", conf.URL, err)
		}
		a.issuers[conf.URL] = &issuer{conf, keys, oidc.NewVerifier(conf.URL, keys, &oidc.Config{
			// Audiences, of which there may be several, and times, with their tolerance, are checked by this package.
			SkipClientIDCheck: true, SkipExpiryCheck: true, SupportedSigningAlgs: conf.Algorithms,
		})}
	}
	return a, nil
}

// Run fetches the keys of each issuer, and refreshes them periodically, until ctx ends.
func (a *Authenticator) Run(ctx context.Context) error {
	var group errgroup.Group
	for _, is := range a.issuers {
		group.Go(func() error { a.keep(ctx, is); return nil })
	}
	return group.Wait()
}

func (a *Authenticator) keep(ctx context.Context, is *issuer) {
	failing := false
	for {
		err, next := is.keys.Refresh(ctx), fetchEvery
		switch {
		case err != nil && ctx.Err() == nil:
			next = retryEvery
			if !failing {
				a.log.Error(err, "The keys of an issuer cannot be fetched; tokens of keys that are known stay good for a day", "issuer", is.URL)
			}
		case failing:
			a.log.Info("The keys of an issuer are fetched again", "issuer", is.URL)
		}
		failing = err != nil
		if wallclock.Sleep(ctx, a.clock, next) != nil {
			return
		}
	}
}

// Authenticate implements access.Authenticator.
func (a *Authenticator) Authenticate(ctx context.Context, token string) (*access.Identity, error) {
	if len(token) > maxToken {
		return nil, problem.New(problem.Unauthenticated, "the bearer token has %d bytes, want at most %d", len(token), maxToken)
	}
	is := a.issuers[issuerOf(token)]
	if is == nil {
		return nil, access.ErrNotMine
	}
	who, err := is.authenticate(ctx, token, a.clock.Now())
	var down *unreachable
	switch {
	case err == nil:
		return who, nil
	case errors.As(err, &down):
		a.log.V(1).Info("A token could not be verified", "issuer", is.URL, "error", err.Error())
		return nil, problem.New(problem.Unavailable, "the bearer token cannot be verified now: its issuer %s does not respond", is.URL).
			WithRetryAfter(problem.RetrySoon)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, problem.New(problem.Unauthenticated, "the bearer token of issuer %s is not valid: %v", is.URL, err)
}

// issuerOf returns the issuer that a token claims, or "" if it is not an OpenID Connect token. Nothing is verified yet.
func issuerOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// times are the claims that limit when a token is valid.
type times struct {
	Expires   *json.Number `json:"exp"`
	NotBefore *json.Number `json:"nbf"`
	Issued    *json.Number `json:"iat"`
}

func (is *issuer) authenticate(ctx context.Context, token string, now time.Time) (*access.Identity, error) {
	var check signatureCheck
	proved, err := is.verifier.Verify(context.WithValue(ctx, signatureCheckKey{}, &check), token)
	switch {
	case check.err != nil:
		return nil, check.err
	case err != nil:
		return nil, plain(err)
	}
	if !is.audience(proved.Audience) {
		return nil, fmt.Errorf("it is for %.200q, want %q", proved.Audience, is.Audiences)
	}
	var when times
	if err := proved.Claims(&when); err != nil {
		return nil, errors.New("exp, nbf or iat is not a number")
	}
	expires, err := is.valid(when, now)
	if err != nil {
		return nil, err
	}
	var claims map[string]any
	if err := proved.Claims(&claims); err != nil {
		return nil, errors.New("its claims are not an object")
	}
	who, err := is.identity(claims)
	if err != nil {
		return nil, err
	}
	who.Expires = &expires
	return who, nil
}

// plain replaces errors of the library with clearer ones.
func plain(err error) error {
	if strings.Contains(err.Error(), "malformed jwt") {
		return errors.New("it is malformed, or signed by an algorithm that is not allowed")
	}
	return errSignature
}

func (is *issuer) audience(of []string) bool {
	return slices.ContainsFunc(is.Audiences, func(want string) bool { return slices.Contains(of, want) })
}

// valid compares a token's times with the clock, and returns when it expires, including the tolerance.
func (is *issuer) valid(when times, now time.Time) (time.Time, error) {
	expires, ok := moment(when.Expires)
	if !ok {
		return expires, errors.New("it has no valid exp")
	}
	skew := is.ClockSkew.Duration
	if end := expires.Add(skew); !now.Before(end) {
		return end, fmt.Errorf("it expired at %s", expires.UTC().Format(time.RFC3339))
	}
	for name, claim := range map[string]*json.Number{"nbf": when.NotBefore, "iat": when.Issued} {
		begin, ok := moment(claim)
		if claim != nil && !ok {
			return begin, fmt.Errorf("its %s is not valid", name)
		}
		if claim != nil && now.Add(skew).Before(begin) {
			return begin, fmt.Errorf("it is not valid before %s (%s); are the clocks right?", begin.UTC().Format(time.RFC3339), name)
		}
	}
	return expires.Add(skew), nil
}

// moment parses a NumericDate in a year of four digits.
func moment(n *json.Number) (time.Time, bool) {
	if n == nil {
		return time.Time{}, false
	}
	seconds, err := n.Float64()
	if err != nil || seconds <= 0 || seconds > 253402300799 {
		return time.Time{}, false
	}
	return time.Unix(int64(seconds), 0), true
}
