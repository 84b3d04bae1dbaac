// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"navix.sh/atoll/e2e/must"
)

func TestTheHubServesAgents(t *testing.T) {
	o := testOptions(t)
	o.mcp = mcpOptions{sessions: 2, perCaller: 2, sandboxes: 1, patience: time.Minute}
	must.Succeed(t, o.mcp.validate())
	h := start(t, o)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: "http://" + h.api + "/mcp?env=demo", HTTPClient: &http.Client{Transport: transport},
	}, nil)
	must.Succeed(t, err)
	// The tool's call of the API goes all the way: there is no such Env.
	r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "create", Arguments: map[string]any{}})
	must.Succeed(t, err)
	if text := r.Content[0].(*mcp.TextContent).Text; !r.IsError || !strings.Contains(text, "demo") {
		t.Errorf("create: %q", text)
	}
	must.Succeed(t, session.Close())
	// A page that uses a name of its own for this server gets nothing.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+h.api+"/mcp", strings.NewReader(`{}`))
	must.Succeed(t, err)
	request.Host = "rebound.example"
	response, err := transport.RoundTrip(request)
	must.Succeed(t, err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("by another host name: %d, want 403", response.StatusCode)
	}
}

func TestAHubWithoutSessions(t *testing.T) {
	h := start(t, testOptions(t))
	if code, body := get(t, "http://"+h.api+"/mcp"); code != http.StatusNotFound {
		t.Errorf("%d %s, want 404", code, body)
	}
	for _, bad := range []mcpOptions{
		{sessions: -1, perCaller: 1, sandboxes: 1, patience: time.Minute}, {sessions: 1, sandboxes: 1, patience: time.Minute},
		{sessions: 1, perCaller: 1, patience: time.Minute}, {sessions: 1, perCaller: 1, sandboxes: 1},
		{sessions: 1, perCaller: 1, sandboxes: 1, patience: time.Minute, idle: -1},
	} {
		if bad.validate() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
