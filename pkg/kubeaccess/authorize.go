// SPDX-License-Identifier: Apache-2.0

package kubeaccess

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"

	"navix.sh/atoll/pkg/access"
)

// reviewer asks the cluster about permissions.
type reviewer struct {
	rbac   authorizer.Authorizer
	flight singleflight.Group
}

func newReviewer(client kubernetes.Interface, ttl time.Duration) (*reviewer, error) {
	retry := backoff()
	rbac, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(), AllowCacheTTL: ttl, DenyCacheTTL: ttl / 3, WebhookRetryBackoff: &retry,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("subject access reviews: %w", err)
	}
	return &reviewer{rbac: rbac}, nil
}

// allowed asks about a permission in a namespace, or in all if namespace is empty. The library caches the result. Callers with the same
// question share one request.
func (r *reviewer) allowed(ctx context.Context, who *access.Identity, p access.Permission, namespace string) (bool, error) {
	question := struct {
		User, UID string
		Groups    []string
		Extra     map[string][]string
		access.Permission
		Namespace string
	}{who.User, who.UID, who.Groups, who.Extra, p, namespace}
	key, err := json.Marshal(question)
	if err != nil {
		return false, fmt.Errorf("asking about a permission: %w", err)
	}
	done := r.flight.DoChan(string(key), func() (any, error) {
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		decision, _, err := r.rbac.Authorize(limit, attributes(who, p, namespace))
		return decision == authorizer.DecisionAllow, err
	})
	select {
	case result := <-done:
		if result.Err != nil {
			return false, result.Err
		}
		return result.Val.(bool), nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func attributes(who *access.Identity, p access.Permission, namespace string) authorizer.Attributes {
	resource, sub, _ := strings.Cut(p.Resource, "/")
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: who.User, UID: who.UID, Groups: who.Groups, Extra: who.Extra},
		Verb: p.Verb, APIGroup: Group, APIVersion: "v1", Resource: resource, Subresource: sub, Namespace: namespace, ResourceRequest: true,
	}
}

// namespaced reports whether a permission is about objects in namespaces. A RoleBinding cannot grant any other permission.
func namespaced(p access.Permission) bool {
	resource, _, _ := strings.Cut(p.Resource, "/")
	return resource == access.Sandboxes || resource == access.Envs || resource == access.Claims
}

// Authorize implements access.Authorizer.
func (c *Cluster) Authorize(ctx context.Context, who *access.Identity, p access.Permission) (access.Grant, error) {
	if who.User == "" || who.Key != "" {
		return access.Grant{}, nil // an API key is not a user of the cluster
	}
	everywhere, err := c.reviewer.allowed(ctx, who, p, "")
	if err != nil {
		return access.Grant{}, c.unavailable(ctx, "authorize", err)
	}
	if everywhere {
		return access.Grant{Scopes: []access.Scope{{
			AllNamespaces: true, AllTeams: true, Whole: true, Shared: true, From: "the cluster's RBAC",
		}}}, nil
	}
	if reach, known := access.ReachOf(p); !known || reach == access.All || !namespaced(p) {
		return access.Grant{}, nil
	}
	return access.Grant{Ask: func(namespace string) (bool, error) {
		if namespace == "" {
			return false, nil
		}
		ok, err := c.reviewer.allowed(ctx, who, p, namespace)
		if err != nil {
			return false, c.unavailable(ctx, "authorize", err)
		}
		return ok, nil
	}}, nil
}
