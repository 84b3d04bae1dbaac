// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
)

// Caller identifies the caller of a request in the log.
type Caller struct {
	Name, Team, User string // empty: not known
}

// Journal logs creates, releases and cancels, and why any of them failed. who returns the caller. hash returns the hash of a claim key that
// also names it in Pods and the store; it does not reveal the key.
func Journal(
	log logr.Logger, who func(context.Context) Caller, hash audit.KeyHash,
) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		resp, err := handler(ctx, req)
		var did, refused string
		switch info.FullMethod {
		case sandboxv1.Sandboxes_CreateSandbox_FullMethodName:
			did, refused = "Created a sandbox", "Refused a create"
		case sandboxv1.Sandboxes_ReleaseSandbox_FullMethodName:
			did, refused = "Released a sandbox", "Refused a release"
		case sandboxv1.Claims_CancelClaim_FullMethodName:
			did, refused = "Cancelled a claim", "Refused a cancel"
		default:
			return resp, err
		}
		caller := who(ctx)
		values := append([]any{"principal", caller.Name}, about(req, resp, caller, hash)...)
		switch {
		case errors.Is(err, context.Canceled):
			log.Info("The caller of a call has left", append(values, "call", info.FullMethod)...)
		case err != nil:
			p := problem.FromError(err)
			log.Info(refused, append(values, "reason", string(p.Reason), "detail", detail(p, claimKey(req)))...)
		default:
			log.Info(did, values...)
		}
		return resp, err
	}
}

// detail returns an error's message without parts of the request, because claim keys and the values of fields may be secret.
func detail(p *problem.Error, key string) string {
	if len(p.Fields) == 0 {
		return strings.ReplaceAll(p.Message, strconv.Quote(key), "(its hash is claimKeyHash)")
	}
	wanted := make([]string, 0, len(p.Fields))
	for _, f := range p.Fields {
		field, _, _ := strings.Cut(f.Field, "[")
		wanted = append(wanted, field+": want "+f.Valid)
	}
	return strings.Join(wanted, "; ")
}

// about returns the log values of a call, except for its caller.
func about(req, resp any, caller Caller, hash audit.KeyHash) (values []any) {
	object, cluster := audit.About("sandboxes", req, resp, audit.Who{Team: caller.Team, User: caller.User}, hash)
	sandbox, ok := resp.(*sandboxv1.Sandbox)
	if claim, is := resp.(*sandboxv1.Claim); is && !ok {
		sandbox = claim.GetSandbox()
	}
	add := func(name, value string) {
		if value != "" {
			values = append(values, name, value)
		}
	}
	add("team", clipped(cmp.Or(object.Team, caller.Team)))
	if _, cancels := req.(*sandboxv1.CancelClaimRequest); !cancels {
		add("user", clipped(cmp.Or(object.User, caller.User)))
	}
	if object.Env != "" {
		add("env", clipped(object.Namespace)+"/"+clipped(object.Env))
	}
	add("claimKeyHash", object.ClaimKeyHash)
	add("sandbox", clipped(object.Sandbox))
	add("cluster", cluster)
	if outcome.Over(sandbox) {
		add("ended", clipped(outcome.Cause(sandbox)))
	}
	return values
}
