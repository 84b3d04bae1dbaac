// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"

	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/mcpserver"
	"navix.sh/atoll/pkg/serve"
)

// newAudit returns the audit of the calls of the public API.
func newAudit(log *audit.Log) *audit.Calls {
	return &audit.Calls{
		Log: log, Hash: ledger.KeyHash, From: auditedFrom,
		Who: func(ctx context.Context) audit.Who { return audit.As(principal.From(ctx).Identity) },
	}
}

func auditedFrom(ctx context.Context) (audit.From, string) {
	o := serve.OriginOf(ctx)
	return audit.From{Address: o.Address, UserAgent: o.UserAgent}, o.RequestID
}

// auditSession audits refused requests for sessions of agents. The calls of a session are audited one by one.
func auditSession(calls *audit.Calls, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := audit.Watch(r.Context())
		next.ServeHTTP(w, r.WithContext(ctx))
		call := audit.Call{Verb: "create", Resource: access.Sandboxes, Changes: true}
		calls.RecordRefusal(ctx, call, func(e *audit.Event) { e.Conversation = &audit.Conversation{Kind: mcpserver.Kind} })
	})
}
