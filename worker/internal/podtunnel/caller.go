// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"navix.sh/atoll/pkg/clip"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// maxCaller bounds a caller's name in a user agent.
const maxCaller = 128

type callerKey struct{}

// asking returns a context that makes requests to the API server name the caller of a conversation. The API server's audit has the user
// agent of each request, so that a Pod's exec leads to a caller. The authorized account is still the worker's own.
func asking(ctx context.Context, what *federationv1.ReachCall) context.Context {
	return context.WithValue(ctx, callerKey{}, "caller="+token(cmp.Or(what.GetCaller(), "unknown"))+"; sandbox="+token(what.GetSandboxId()))
}

// userAgent returns the worker's user agent with the caller.
func (a *APIServer) userAgent(ctx context.Context) string {
	asked, ok := ctx.Value(callerKey{}).(string)
	if !ok {
		return a.config.UserAgent
	}
	return a.config.UserAgent + " (" + asked + ")"
}

// name sets the user agent of a request; client-go keeps one that is set.
func (a *APIServer) name(request *http.Request) {
	if agent := a.userAgent(request.Context()); agent != "" {
		request.Header.Set("User-Agent", agent)
	}
}

// token makes a text from the hub safe for a header's comment; it could otherwise end the comment, or the header.
func token(text string) string {
	return clip.Text(strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune(`();="\,`, r) {
			return '_'
		}
		return r
	}, text[:min(len(text), maxCaller)]), maxCaller)
}
