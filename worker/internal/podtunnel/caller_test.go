// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"context"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// A caller's name neither ends the comment of the user agent nor the header, whatever it is.
func TestTheUserAgentNamesTheCaller(t *testing.T) {
	a := &APIServer{config: &rest.Config{UserAgent: "atoll-worker/v1"}}
	for caller, want := range map[string]string{
		"key:ci":               "atoll-worker/v1 (caller=key:ci; sandbox=01-east)",
		"":                     "atoll-worker/v1 (caller=unknown; sandbox=01-east)",
		"oidc:ann@example.org": "atoll-worker/v1 (caller=oidc:ann@example.org; sandbox=01-east)",
		"a) (caller=key:root; sandbox=x\r\nX-Y: z\x1b é": "atoll-worker/v1 (caller=a__" +
			"_caller_key:root__sandbox_x__X-Y:_z___; sandbox=01-east)",
		strings.Repeat("x", 1000): "atoll-worker/v1 (caller=" + strings.Repeat("x", maxCaller) + "; sandbox=01-east)",
	} {
		ctx := asking(t.Context(), &federationv1.ReachCall{SandboxId: "01-east", Caller: caller})
		if got := a.userAgent(ctx); got != want {
			t.Errorf("%q: %q, want %q", caller, got, want)
		}
	}
	if got := a.userAgent(context.Background()); got != "atoll-worker/v1" {
		t.Errorf("without a conversation: %q", got)
	}
}
