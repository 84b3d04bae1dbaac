// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"

	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/serve"
)

// newAudit returns what records the calls of the public API.
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
