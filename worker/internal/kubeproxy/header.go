// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"net/http"
	"strings"
)

// passing are the headers of requests that reach the API server, in canonical form. net/http handles Content-Length and Transfer-Encoding,
// and the reverse proxy handles Connection and Upgrade.
var passing = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Cache-Control": true, "Content-Encoding": true, "Content-Type": true,
	"If-Match": true, "If-Modified-Since": true, "If-None-Match": true, "If-Unmodified-Since": true, "Range": true, "User-Agent": true,
	"Connection": true, "Upgrade": true, "Kubectl-Command": true, "Kubectl-Session": true, "Sec-Websocket-Extensions": true,
	"Sec-Websocket-Key": true, "Sec-Websocket-Protocol": true, "Sec-Websocket-Version": true, "Traceparent": true,
	"X-Stream-Protocol-Version": true,
}

// bearerProtocol is the prefix of a WebSocket subprotocol that is a bearer token.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// clean removes headers that may not pass, and sets the impersonated identity. Before it, the reverse proxy has removed hop-by-hop headers,
// including those that Connection names.
func clean(h http.Header, who Identity) {
	for name := range h {
		if !passing[name] { // a name that is not canonical is not listed either
			delete(h, name)
		}
	}
	cleanProtocols(h)
	h.Set("Impersonate-User", who.User)
	for _, group := range who.Groups {
		h.Add("Impersonate-Group", group)
	}
}

// cleanProtocols removes bearer tokens from the WebSocket subprotocols.
func cleanProtocols(h http.Header) {
	const name = "Sec-Websocket-Protocol"
	lines := h[name]
	if len(lines) == 0 {
		return
	}
	var kept []string
	for _, protocol := range strings.Split(strings.Join(lines, ","), ",") {
		protocol = strings.TrimSpace(protocol)
		if protocol != "" && !strings.HasPrefix(strings.ToLower(protocol), bearerProtocol) {
			kept = append(kept, protocol)
		}
	}
	h.Del(name)
	if len(kept) > 0 {
		h.Set(name, strings.Join(kept, ", "))
	}
}
