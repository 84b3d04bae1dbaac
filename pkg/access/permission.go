// SPDX-License-Identifier: Apache-2.0

package access

import (
	"maps"
	"slices"
	"strings"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// Permission is a verb on a resource.
type Permission struct{ Resource, Verb string }

// String returns the permission as errors show it: "create sandboxes/exec".
func (p Permission) String() string { return p.Verb + " " + p.Resource }

// ofCluster reports whether the calls that need a permission name a cluster and check it.
func (p Permission) ofCluster() bool { return p.Resource == Clusters || p.Resource == ClustersProxy }

// The resources.
const (
	Sandboxes     = "sandboxes"
	SandboxesExec = "sandboxes/exec"
	SandboxesLog  = "sandboxes/log"
	SandboxesPort = "sandboxes/ports"
	Envs          = "envs"
	Templates     = "templates"
	Clusters      = "clusters"
	ClustersProxy = "clusters/proxy"
	Claims        = "claims"
	Hub           = "hub"
	Keys          = "keys"
	Policies      = "access"
	Quotas        = "quotas"
	Pki           = "pki"
)

// Conversations with sandboxes, as permissions.
var (
	Exec  = Permission{SandboxesExec, "create"}
	Logs  = Permission{SandboxesLog, "get"}
	Ports = Permission{SandboxesPort, "create"}
)

// Proxy is the permission to reach the API servers of clusters.
var Proxy = Permission{ClustersProxy, "create"}

// check is granted to every caller.
var check = Permission{Policies, "check"}

// Reach is the set of callers that a call concerns.
type Reach = sandboxv1.Reach

// The reaches, from the least.
const (
	Own   = sandboxv1.ReachOwn   // only what the caller may see, which the call itself checks
	Teams = sandboxv1.ReachTeams // every team of a namespace
	All   = sandboxv1.ReachHub   // every caller
)

// Method describes what a method requires.
type Method struct {
	Permission
	Reach   Reach
	Changes bool // the method changes something, and is audited
}

// reflection is gRPC's reflection service.
var reflection = Method{Permission: Permission{Hub, "get"}}

// conversations maps the kinds of conversations, as in the paths of REST, to what they require.
var conversations = map[string]Method{
	"exec": {Permission: Exec},
	"logs": {Permission: Logs},
	// The daemon's port is not included: it is processes.
	"ports": {Permission: Ports},
	// Atoll's namespaces and teams do not limit it; the cluster's RBAC does.
	"kubernetes": {Permission: Proxy, Reach: All},
	// A caller that may run a command could do these anyway.
	"files":     {Permission: Exec},
	"processes": {Permission: Exec},
	// Each tool of a session needs the permissions of the REST call that it makes.
	"mcp": OfMethod(sandboxv1.Sandboxes_CreateSandbox_FullMethodName),
}

// OfMethod returns what a gRPC method requires, by its full name. An unknown method requires the role admin.
func OfMethod(full string) Method {
	if m, ok := sandboxv1.MethodPermissions[full]; ok {
		return Method{Permission: Permission{m.Resource, m.Verb}, Reach: m.Reach, Changes: m.Changes}
	}
	if strings.HasPrefix(full, "/grpc.reflection.") {
		return reflection
	}
	return Method{Permission: Permission{Hub, "unknown"}, Reach: All, Changes: true}
}

// OfConversation returns what a conversation requires: exec, logs, ports, files or processes of a sandbox; kubernetes, with the API server
// of a cluster; mcp, with the sandboxes of a session.
func OfConversation(kind string) (m Method, ok bool) {
	m, ok = conversations[kind]
	return m, ok
}

// Conversations returns all kinds of conversations, in order.
func Conversations() []string { return slices.Sorted(maps.Keys(conversations)) }

// permissions are all permissions that methods and conversations require, with their least reach.
var permissions = reaches()

// reaches returns the least reach of each permission. A caller for whom it suffices may make some of the permission's calls.
func reaches() map[Permission]Reach {
	all := map[Permission]Reach{}
	add := func(p Permission, r Reach) {
		if least, known := all[p]; !known || r < least {
			all[p] = r
		}
	}
	for _, m := range sandboxv1.MethodPermissions {
		add(Permission{m.Resource, m.Verb}, m.Reach)
	}
	for _, m := range conversations {
		add(m.Permission, m.Reach)
	}
	return all
}

// Permissions returns all permissions, in order.
func Permissions() []Permission {
	return slices.SortedFunc(maps.Keys(permissions), func(a, b Permission) int {
		return strings.Compare(a.Resource+" "+a.Verb, b.Resource+" "+b.Verb)
	})
}

// ReachOf returns the least reach of the calls that need a permission, or false if there is no such permission.
func ReachOf(p Permission) (Reach, bool) {
	r, ok := permissions[p]
	return r, ok
}

// Resources returns all resources, in order.
func Resources() []string { return distinct(func(p Permission) string { return p.Resource }) }

// Verbs returns all verbs, in order.
func Verbs() []string { return distinct(func(p Permission) string { return p.Verb }) }

func distinct(of func(Permission) string) []string {
	var all []string
	for p := range permissions {
		all = append(all, of(p))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
