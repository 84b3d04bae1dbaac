// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/inventory/inventorytest"
	"navix.sh/atoll/worker/internal/secretenv"
)

// oneSecret has the Secret "creds" of each namespace.
type oneSecret struct{}

func (oneSecret) Secret(_ context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	if name.Name != "creds" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name.Name)
	}
	return &corev1.Secret{Data: map[string][]byte{"token": []byte("canary")}}, nil
}

// A claim that refers to a Secret that it cannot have is refused before it has a Pod: elsewhere it may have it, unless no daemon takes it.
func TestSecretsAreRefusedBeforeAPodIsTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		runtime, secret, key string
		rule                 string
		reason               problem.Reason // empty: it gets a Pod
		refused              bool           // it may go elsewhere
	}{
		"allowed":         {"e2b", "creds", "token", "creds", "", false},
		"without daemon":  {"other", "creds", "token", "creds", problem.Invalid, false},
		"what is no name": {"e2b", "A_", "token", "creds", problem.Invalid, false},
		"not allowed":     {"e2b", "creds", "token", "other", problem.Misconfigured, true},
		"no rules":        {"e2b", "creds", "token", "", problem.Misconfigured, true},
		"missing":         {"e2b", "llm-x", "token", "llm-*", problem.Misconfigured, true},
		"a missing key":   {"e2b", "creds", "x", "creds", problem.Misconfigured, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStation(t, 8)
			var values []string
			if tc.rule != "" {
				values = []string{inventorytest.Pool.Namespace + "/" + tc.rule}
			}
			rules, err := secretenv.ParseRules(values)
			must.Succeed(t, err)
			s.opts.Secrets = secretenv.New(rules, oneSecret{})
			p := demoPool(nil)
			p.Spec.Runtimes = []v1alpha1.SandboxRuntimeSpec{{Name: tc.runtime}}
			s.Update(func(st *inventory.State) { st.SetPool(p) })
			s.Appear(s.IdlePod("a"))
			c := s.keyed("k", 1)
			c.Request.Secrets = []*sandboxv1.SandboxSecret{{Env: "TOKEN", Name: tc.secret, Key: tc.key}}
			c.Belongings = []string{"envVars", "secrets"}
			_, err = s.Create(t.Context(), c)
			var reason problem.Reason
			if err != nil {
				reason = problem.FromError(err).Reason
			}
			if reason != tc.reason || disposition.Refused(err) != tc.refused {
				t.Errorf("%s: %v, want %q", name, err, tc.reason)
			}
			if err != nil && (!strings.Contains(problem.FromError(err).Message, "secrets") || strings.Contains(err.Error(), "canary")) {
				t.Errorf("%s: %v", name, err)
			}
			if n := s.API.Patches(); (n > 0) != (tc.reason == "") {
				t.Errorf("%s: %d writes", name, n)
			}
		})
	}
}
