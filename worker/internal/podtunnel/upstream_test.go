// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/reach"
)

// A conversation resumes the TLS session of the one before it; because a whole handshake is most of what opening costs an API server.
func TestConversationsResumeTheirTLSSession(t *testing.T) {
	var resumed []bool
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resumed = append(resumed, r.TLS.DidResume)
		conn, err := (&websocket.Upgrader{Subprotocols: []string{reach.ExecProtocol}}).Upgrade(w, r, nil)
		if err == nil {
			_ = conn.WriteMessage(websocket.BinaryMessage, nil)
			_ = conn.Close()
		}
	}))
	defer server.Close()
	upstream, err := NewAPIServer(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	must.Succeed(t, err)
	at, err := url.Parse(server.URL)
	must.Succeed(t, err)
	for range 3 {
		conn, err := upstream.upgrade(t.Context(), at, reach.ExecProtocol)
		must.Succeed(t, err)
		_, _, err = conn.ReadMessage() // the session's ticket arrives before it
		must.Succeed(t, err)
		must.Succeed(t, conn.Close())
	}
	if len(resumed) != 3 || resumed[0] || !resumed[1] || !resumed[2] {
		t.Errorf("resumed: %v, want all but the first", resumed)
	}
}
