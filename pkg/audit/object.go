// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// KeyHash returns a hash that identifies a claim key without revealing it.
type KeyHash func(team, namespace, key string) string

// defaultNamespace is the namespace of requests without one.
const defaultNamespace = "default"

// About returns the object of a call and its cluster, from the request, the response (nil before the call) and the caller. Nothing else
// from a request is recorded, because bodies contain secrets.
func About(resource string, req, resp any, who Who, hash KeyHash) (object Object, cluster string) {
	object = Object{Resource: resource}
	key := ""
	sandbox, _ := resp.(*sandboxv1.Sandbox)
	switch r := req.(type) {
	case *sandboxv1.CreateSandboxRequest:
		object.Namespace, object.Env = cmp.Or(r.GetNamespace(), defaultNamespace), r.GetEnv()
		object.Team, object.User, key = cmp.Or(r.GetTeam(), who.Team), cmp.Or(r.GetUser(), who.User), r.GetClaimKey()
		object.Sandbox = sandbox.GetId()
	case *sandboxv1.CancelClaimRequest:
		if claim, ok := resp.(*sandboxv1.Claim); ok {
			sandbox = claim.GetSandbox()
		}
		object.Namespace, object.Team, key = cmp.Or(r.GetNamespace(), defaultNamespace), cmp.Or(r.GetTeam(), who.Team), r.GetClaimKey()
		object.Sandbox = sandbox.GetId()
	default:
		object.Namespace, object.Name = text(req, getNamespace), cmp.Or(text(req, getName), text(req, getID))
		object.Team, object.User = text(req, getTeam), text(req, getUser)
		switch resource {
		case "sandboxes":
			object.Sandbox, object.Name = object.Name, ""
		case "clusters":
			cluster = object.Name
		}
	}
	if sandbox != nil {
		object.Namespace, object.Env = cmp.Or(object.Namespace, sandbox.GetNamespace()), cmp.Or(object.Env, sandbox.GetEnv())
		object.Team, object.User = cmp.Or(object.Team, sandbox.GetTeam()), cmp.Or(object.User, sandbox.GetUser())
		key, cluster = cmp.Or(key, sandbox.GetClaimKey()), sandbox.GetClusterId()
	}
	if key != "" {
		object.ClaimKeyHash = hash(object.Team, object.Namespace, key)
	}
	return object, cluster
}

func getNamespace(m interface{ GetNamespace() string }) string { return m.GetNamespace() }
func getName(m interface{ GetName() string }) string           { return m.GetName() }
func getID(m interface{ GetId() string }) string               { return m.GetId() }
func getTeam(m interface{ GetTeam() string }) string           { return m.GetTeam() }
func getUser(m interface{ GetUser() string }) string           { return m.GetUser() }

// text returns a field of a message, or "" if the message does not have the field.
func text[M any](m any, get func(M) string) string {
	if has, ok := m.(M); ok {
		return get(has)
	}
	return ""
}
