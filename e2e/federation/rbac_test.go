// SPDX-License-Identifier: Apache-2.0

//go:build !kind

package federation_test

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
)

// roles are the generated ones, by the ServiceAccount that they are bound to.
var roles = map[string]string{
	"atoll-worker":  filepath.Join("..", "..", "charts", "worker", "files", "rbac", "worker_role.yaml"),
	"atoll-catalog": filepath.Join("..", "..", "charts", "worker", "files", "rbac", "catalog_role.yaml"),
	"atoll-sync":    filepath.Join("..", "..", "charts", "worker", "files", "rbac", "sync_role.yaml"),
}

// grant is one permission of an account.
type grant struct {
	account, namespace, verb, group, resource, name string // namespace and name: empty is any
}

func (g grant) String() string {
	resource := strings.TrimSuffix(g.resource+"."+g.group, ".")
	return strings.TrimRight(fmt.Sprintf("%s may %s %s %s", g.account, g.verb, resource, g.name), " ")
}

// noPolicies is why no worker here writes NetworkPolicies.
const noPolicies = "pools have no NetworkPolicy here (--sandbox-network-policy); package netpolicy's tests have the same role"

// applies is why a right to create has no request.
const applies = "a server-side apply is a PATCH, for which an API server asks about create where the object is not there"

// beyondRequests are grants without a request in the tests, with the reason for them.
var beyondRequests = map[string]string{
	"atoll-worker may update sandboxenvs/finalizers.agents.navix.sh": "the admission plugin OwnerReferencesPermissionEnforcement asks for " +
		"it, where pools are made",
	"atoll-worker may update sandboxpools/finalizers.agents.navix.sh": "the same, where Pods are made",
	"atoll-worker may get pods": "follows a claim write that was lost or whose outcome is unclear: " +
		"package claim's tests have both",
	"atoll-worker may create pods/exec": "asked for beside get where a command runs by WebSocket, and by " +
		"itself where that does not get through",
	"atoll-worker may create pods/portforward": "the same, and it is how ports are forwarded before 1.31",
	"atoll-worker may list leases.coordination.k8s.io": "leases are read only where --rival-leases names some; the command's " +
		"own test of it has the same role",
	"atoll-worker may watch networkpolicies.networking.k8s.io":  noPolicies,
	"atoll-worker may create networkpolicies.networking.k8s.io": noPolicies,
	"atoll-worker may patch networkpolicies.networking.k8s.io":  noPolicies,
	"atoll-worker may delete networkpolicies.networking.k8s.io": noPolicies,
	"atoll-worker may create sandboxenvs.agents.navix.sh": "pools are not adopted here (--adopt-pools); the command's own test " +
		"of it has the same role",
	"atoll-worker may patch sandboxenvs.agents.navix.sh": "replicas are written where a manifest states them, of a member that is " +
		"autoscaled or partly admitted: package env has tests of both (TestReplicas, TestAdmissionIsFrozen)",
	"atoll-catalog may create sandboxenvs.agents.navix.sh":      applies,
	"atoll-catalog may create sandboxtemplates.agents.navix.sh": applies,
	"atoll-worker may patch events.events.k8s.io":               "an event that is repeated within minutes becomes a series",
}

// impostorsEnv is where a worker under another's name is kept from the segment that is not its own.
const impostorsEnv = "identity"

// checkRights compares the workers' requests in all tests with the chart's permissions: none was refused, and each was used.
func checkRights() error {
	var events []plane.AuditEvent
	for _, p := range set.Planes() {
		audit, err := p.Audit()
		if err != nil {
			return fmt.Errorf("reading what was asked in %s: %w", p.Name, err)
		}
		events = append(events, audit...)
	}
	errs := refusals(events)
	// A part of the tests uses a part of the permissions.
	if flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" {
		grants, err := readGrants()
		if err != nil {
			return err
		}
		errs = append(errs, idle(grants, events)...)
	}
	return errors.Join(errs...)
}

func accountOf(event *plane.AuditEvent) string {
	account, _ := strings.CutPrefix(event.User, "system:serviceaccount:"+stack.Namespace+":")
	return account
}

// refusals are requests of the accounts that RBAC or a policy refused, each kind once.
func refusals(events []plane.AuditEvent) []error {
	seen := map[string]bool{}
	var errs []error
	for i := range events {
		event := &events[i]
		account := accountOf(event)
		if _, ours := roles[account]; !ours || event.Code != http.StatusForbidden || event.Name == impostorsEnv {
			continue
		}
		text := fmt.Sprintf("%s was refused: %s %s", account, event.Verb, resourceOf(event))
		if !seen[text] {
			seen[text] = true
			errs = append(errs, fmt.Errorf("%s %s/%s", text, event.Namespace, event.Name))
		}
	}
	return errs
}

// idle are the grants that no request used, and reasons for missing grants.
func idle(grants []grant, events []plane.AuditEvent) []error {
	used := map[grant]bool{}
	for i := range events {
		event := &events[i]
		for _, namespace := range []string{"", event.Namespace} {
			for _, name := range []string{"", event.Name} {
				g := grant{accountOf(event), namespace, event.Verb, event.Group, resourceOf(event), name}
				used[g] = true
				if g.verb == "watch" {
					// Informers list first if an API server cannot stream the initial objects.
					g.verb = "list"
					used[g] = true
				}
			}
		}
	}
	var errs []error
	reasons := maps.Clone(beyondRequests)
	for _, g := range grants {
		if _, reason := reasons[g.String()]; !used[g] && !reason {
			errs = append(errs, fmt.Errorf("nothing made use of it: %s", g))
		}
		delete(reasons, g.String())
	}
	for g, reason := range reasons {
		errs = append(errs, fmt.Errorf("a reason without a right: %s: %s", g, reason))
	}
	return errs
}

func resourceOf(event *plane.AuditEvent) string {
	return strings.TrimSuffix(event.Resource+"/"+event.Subresource, "/")
}

// readGrants takes the roles apart.
func readGrants() ([]grant, error) {
	var grants []grant
	for account, path := range roles {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading the chart's roles: %w", err)
		}
		for _, document := range bytes.Split(content, []byte("---\n")) {
			var role rbacv1.Role // a ClusterRole has the same fields, and no namespace
			if err := yaml.UnmarshalStrict(document, &role); err != nil {
				return nil, fmt.Errorf("reading %s: %w", path, err)
			}
			for i := range role.Rules {
				grants = append(grants, grantsOf(account, role.Namespace, &role.Rules[i])...)
			}
		}
	}
	if len(grants) == 0 {
		return nil, errors.New("the chart's roles allow nothing")
	}
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.String(), b.String()) })
	return grants, nil
}

func grantsOf(account, namespace string, rule *rbacv1.PolicyRule) []grant {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var grants []grant
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for _, name := range names {
					grants = append(grants, grant{account, namespace, verb, group, resource, name})
				}
			}
		}
	}
	return grants
}
