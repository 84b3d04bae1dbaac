// SPDX-License-Identifier: Apache-2.0

package signin

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// renewBefore is how long before its expiry a token is renewed.
const renewBefore = time.Minute

// requestTimeout bounds a request to the issuer.
const requestTimeout = 30 * time.Second

// Settings specify the issuer and the client with which a user signs in.
type Settings struct {
	Issuer   string   `json:"issuer"`
	ClientID string   `json:"clientID"`
	Scopes   []string `json:"scopes,omitempty"` // default openid, email, profile, groups, offline_access
	CA       []byte   `json:"caData,omitempty"` // PEM; default the system's
}

// Tokens are the tokens that an issuer returned.
type Tokens struct {
	Issuer   string    `json:"issuer"`
	ClientID string    `json:"clientID"`
	ID       string    `json:"idToken"`
	Expires  time.Time `json:"expires"`
	Refresh  string    `json:"refreshToken,omitempty"`
	User     string    `json:"user,omitempty"` // name of the user at the issuer
}

// Fresh reports whether the ID token is valid for at least renewBefore.
func (t *Tokens) Fresh(now time.Time) bool {
	return t.ID != "" && now.Before(t.Expires.Add(-renewBefore))
}

// ErrEnded means that the issuer does not renew a sign-in.
var ErrEnded = errors.New("the sign-in has ended")

// Client talks to an issuer.
type Client struct {
	settings Settings
	http     *http.Client
	provider *oidc.Provider
	extra    struct {
		Scopes []string `json:"scopes_supported"`
		Revoke string   `json:"revocation_endpoint"`
	}
}

// New discovers the endpoints of the issuer.
func New(ctx context.Context, s Settings) (*Client, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(s.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(s.CA) {
			return nil, errors.New("the issuer's CA has no PEM certificate")
		}
	}
	c := &Client{settings: s, http: &http.Client{
		Timeout: requestTimeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true},
	}}
	var err error
	if c.provider, err = oidc.NewProvider(oidc.ClientContext(ctx, c.http), s.Issuer); err != nil {
		return nil, fmt.Errorf("asking %s for its endpoints: %w", s.Issuer, err)
	}
	return c, c.provider.Claims(&c.extra)
}

func (s *Settings) check() error {
	u, err := url.Parse(s.Issuer)
	local := err == nil && (u.Hostname() == "localhost" || u.Hostname() == "127.0.0.1" || u.Hostname() == "::1")
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return fmt.Errorf("issuer: %q is not valid, want https://HOST[:PORT][/PATH]", s.Issuer)
	}
	if s.ClientID == "" {
		return errors.New("client id: is missing, want what the issuer knows atollctl as")
	}
	return nil
}

// config returns the OAuth configuration. It omits scopes that the issuer does not know, because some issuers reject a request for them.
func (c *Client) config() *oauth2.Config {
	scopes := c.settings.Scopes
	if len(scopes) == 0 {
		for _, scope := range []string{oidc.ScopeOpenID, "email", "profile", "groups", oidc.ScopeOfflineAccess} {
			if len(c.extra.Scopes) == 0 || slices.Contains(c.extra.Scopes, scope) {
				scopes = append(scopes, scope)
			}
		}
	}
	return &oauth2.Config{ClientID: c.settings.ClientID, Endpoint: c.provider.Endpoint(), Scopes: scopes}
}

func (c *Client) context(ctx context.Context) context.Context { return oidc.ClientContext(ctx, c.http) }

// accept verifies the issuer's response.
func (c *Client) accept(ctx context.Context, got *oauth2.Token, nonce, refresh string) (*Tokens, error) {
	raw, ok := got.Extra("id_token").(string)
	if !ok {
		return nil, fmt.Errorf("%s gave no ID token; is the scope openid allowed?", c.settings.Issuer)
	}
	token, err := c.provider.VerifierContext(c.context(ctx), &oidc.Config{ClientID: c.settings.ClientID}).Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("the ID token of %s: %w", c.settings.Issuer, err)
	}
	if token.Nonce != nonce && nonce != "" {
		return nil, fmt.Errorf("the ID token of %s is of another sign-in", c.settings.Issuer)
	}
	var claims struct {
		Email string `json:"email"`
		Name  string `json:"preferred_username"`
	}
	if err := token.Claims(&claims); err != nil {
		return nil, fmt.Errorf("the ID token of %s: %w", c.settings.Issuer, err)
	}
	return &Tokens{
		Issuer: c.settings.Issuer, ClientID: c.settings.ClientID, ID: raw, Expires: token.Expiry,
		Refresh: cmp.Or(got.RefreshToken, refresh), User: cmp.Or(claims.Email, claims.Name, token.Subject),
	}, nil
}

// Renew returns new tokens for old ones, or ErrEnded.
func (c *Client) Renew(ctx context.Context, old *Tokens) (*Tokens, error) {
	if old.Refresh == "" {
		return nil, fmt.Errorf("%w: %s gave no refresh token", ErrEnded, c.settings.Issuer)
	}
	got, err := c.config().TokenSource(c.context(ctx), &oauth2.Token{RefreshToken: old.Refresh}).Token()
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.Response != nil && !temporary(refused.Response.StatusCode):
		return nil, fmt.Errorf("%w: %s does not renew it (%s)", ErrEnded, c.settings.Issuer, refused.ErrorCode)
	case err != nil:
		return nil, fmt.Errorf("renewing the token at %s: %w", c.settings.Issuer, err)
	}
	return c.accept(ctx, got, "", old.Refresh)
}

// temporary reports whether an issuer that responds with a status may renew a token later.
func temporary(status int) bool {
	return status >= http.StatusInternalServerError || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests
}

// Revoke revokes the refresh token, if the issuer supports this.
func (c *Client) Revoke(ctx context.Context, t *Tokens) error {
	if c.extra.Revoke == "" || t.Refresh == "" {
		return nil
	}
	form := url.Values{"token": {t.Refresh}, "token_type_hint": {"refresh_token"}, "client_id": {c.settings.ClientID}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.extra.Revoke, strings.NewReader(form.Encode()))
	if err != nil {
		return fmt.Errorf("revoking at %s: %w", c.settings.Issuer, err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("revoking at %s: %w", c.settings.Issuer, err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("revoking at %s: %s", c.settings.Issuer, response.Status)
	}
	return nil
}
