// SPDX-License-Identifier: Apache-2.0

package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// redirected is the result of a redirect.
type redirected struct {
	code string
	err  error
}

// Code signs in with a browser on this machine. It calls show with the URL that the user must visit.
func (c *Client) Code(ctx context.Context, show func(where string)) (*Tokens, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the browser: %w", err)
	}
	config := c.config()
	config.RedirectURL = "http://" + listener.Addr().String() + "/callback"
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	got := make(chan redirected, 1)
	server := &http.Server{
		Handler: c.receive(state, got), ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10,
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	defer func() {
		// Let the page that the browser waits for be sent first.
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Shutdown(limit)
		_ = server.Close()
		<-served
	}()
	show(config.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)))
	select {
	case r := <-got:
		if r.err != nil {
			return nil, r.err
		}
		token, err := config.Exchange(c.context(ctx), r.code, oauth2.VerifierOption(verifier))
		if err != nil {
			return nil, fmt.Errorf("exchanging the code at %s: %w", c.settings.Issuer, err)
		}
		return c.accept(ctx, token, nonce, "")
	case <-ctx.Done():
		return nil, errors.New("the browser has not come back in time; on a machine without one, use --device")
	}
}

// receive serves the redirect. It refuses a request without the state, which changes nothing, and any later request.
func (c *Client) receive(state string, got chan<- redirected) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /callback", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		q := r.URL.Query()
		issuer := q.Get("iss")
		if subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(state)) != 1 || issuer != "" && issuer != c.settings.Issuer {
			http.Error(w, "This is not the sign-in that atollctl waits for.", http.StatusBadRequest)
			return
		}
		result := redirected{code: q.Get("code")}
		if result.code == "" {
			result.err = fmt.Errorf("%s refuses: %.100q %.300q", c.settings.Issuer, q.Get("error"), q.Get("error_description"))
		}
		select {
		case got <- result:
		default:
			http.Error(w, "This sign-in was used already.", http.StatusBadRequest)
			return
		}
		if result.err != nil {
			http.Error(w, "The sign-in was refused; the terminal says why.", http.StatusForbidden)
			return
		}
		fmt.Fprintln(w, "Signed in. You can close this window, and go back to the terminal.")
	})
	return mux
}
