// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"context"
	"errors"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
)

// Caller is who makes a call, for the log.
type Caller struct {
	Name, Team, User string // empty: not known
}

// Journal logs creates, releases and cancels, and why they were refused. who returns the caller; hash returns the name of a claim
// key that Pods and the store have, which reveals no key.
func Journal(
	log logr.Logger, who func(context.Context) Caller, hash func(team, namespace, key string) string,
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
			log.Info(refused, append(values, "reason", string(p.Reason), "detail", p.Message)...)
		default:
			log.Info(did, values...)
		}
		return resp, err
	}
}

// about returns what a line says of a call besides its caller.
func about(req, resp any, caller Caller, hash func(team, namespace, key string) string) (values []any) {
	add := func(name, value string) {
		if value != "" {
			values = append(values, name, value)
		}
	}
	sandbox, _ := resp.(*sandboxv1.Sandbox)
	team, user, namespace, env, key := caller.Team, caller.User, "", "", ""
	switch r := req.(type) {
	case *sandboxv1.CreateSandboxRequest:
		team, user = cmp.Or(r.GetTeam(), team), cmp.Or(r.GetUser(), user)
		namespace, env, key = cmp.Or(r.GetNamespace(), "default"), r.GetEnv(), r.GetClaimKey()
	case *sandboxv1.ReleaseSandboxRequest:
		add("sandbox", clip(r.GetId()))
		namespace, env, key = sandbox.GetNamespace(), sandbox.GetEnv(), sandbox.GetClaimKey()
		team, user = cmp.Or(sandbox.GetTeam(), team), cmp.Or(sandbox.GetUser(), user)
	case *sandboxv1.CancelClaimRequest:
		team, namespace, key = cmp.Or(r.GetTeam(), team), cmp.Or(r.GetNamespace(), "default"), r.GetClaimKey()
		claim, _ := resp.(*sandboxv1.Claim)
		sandbox = claim.GetSandbox()
	}
	add("team", clip(team))
	add("user", clip(user))
	if env != "" {
		add("env", clip(namespace)+"/"+clip(env))
	}
	if key != "" {
		add("claimKeyHash", hash(team, namespace, key))
	}
	if _, release := req.(*sandboxv1.ReleaseSandboxRequest); !release {
		add("sandbox", sandbox.GetId())
	}
	add("cluster", sandbox.GetClusterId())
	if outcome.Over(sandbox) {
		add("ended", clip(outcome.Cause(sandbox)))
	}
	return values
}
