// SPDX-License-Identifier: Apache-2.0

package secretenv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/problem"
)

const canary = "canary-90d2"

func TestRules(t *testing.T) {
	rules, err := ParseRules([]string{"agents/llm-*", "agents/token", "other/*"})
	must.Succeed(t, err)
	for name, want := range map[string]bool{
		"agents/llm-openai": true, "agents/llm-": true, "agents/token": true, "agents/token-2": false, "agents/a-llm-b": false,
		"agents/llm.x": false, "other/anything.at.all": true, "default/token": false, "agent/token": false,
	} {
		namespace, secret, _ := strings.Cut(name, "/")
		if got := rules.allow(namespace, secret); got != want {
			t.Errorf("%s: allowed %t, want %t", name, got, want)
		}
	}
	for _, bad := range []string{
		"", "agents", "agents/", "/token", "*/token", "agents/a/b", "agents/[a-z]", "agents/?", "agents/A", "Agents/a",
	} {
		if _, err := ParseRules([]string{"a/b", bad}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", bad)) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := ParseRules(make([]string, maxRules+1)); err == nil {
		t.Error("too many are taken")
	}
}

// shelf has one Secret, default/creds, or an error.
type shelf struct {
	secret *corev1.Secret
	err    error
	reads  int
}

func (s *shelf) Secret(_ context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	s.reads++
	switch {
	case s.err != nil:
		return nil, s.err
	case s.secret == nil || name != (types.NamespacedName{Namespace: "default", Name: "creds"}):
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name.Name)
	}
	return s.secret, nil
}

func creds(data map[string]string, teams ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "creds"}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	if len(teams) > 0 {
		s.Annotations = map[string]string{v1alpha1.HookSecretTeamsAnnotationKey: strings.Join(teams, ", ")}
	}
	return s
}

func ref(env, name, key string) *sandboxv1.SandboxSecret {
	return &sandboxv1.SandboxSecret{Env: env, Name: name, Key: key}
}

func TestRead(t *testing.T) {
	on := &shelf{secret: creds(map[string]string{"a": canary, "b": "two"}, "blue", "red")}
	rules, err := ParseRules([]string{"default/creds"})
	must.Succeed(t, err)
	got, err := New(rules, on).Read(t.Context(), "default", "red", []*sandboxv1.SandboxSecret{ref("A", "creds", "a"), ref("B", "creds", "b")})
	if err != nil || len(got) != 2 || got["A"] != canary || got["B"] != "two" || on.reads != 1 {
		t.Errorf("%v, %v by %d reads", got, err, on.reads)
	}
}

// Each error says what is wrong, and has no value.
func TestNoErrorHasAValue(t *testing.T) {
	const none = `secrets[0]: there is no Secret "creds" in namespace "default" for sandboxes of this team`
	a := []*sandboxv1.SandboxSecret{ref("A", "creds", "a")}
	good := creds(map[string]string{"a": canary})
	for name, tc := range map[string]struct {
		shelf  shelf
		refs   []*sandboxv1.SandboxSecret
		in     string
		reason problem.Reason
		says   string
	}{
		"no such Secret": {shelf{}, a, "default", problem.Misconfigured, none},
		"of other teams": {shelf{secret: creds(map[string]string{"a": canary}, "blue")}, a, "default", problem.Misconfigured, none},
		"of no team":     {shelf{secret: creds(map[string]string{"a": canary}, "")}, a, "default", problem.Misconfigured, none},
		"no such key":    {shelf{secret: creds(map[string]string{"b": canary})}, a, "default", problem.Misconfigured, `has no key "a"`},
		"no text": {shelf{secret: creds(map[string]string{"a": canary + "\xff"})}, a, "default",
			problem.Misconfigured, "is not text"},
		"a NUL": {shelf{secret: creds(map[string]string{"a": canary + "\x00"})}, a, "default",
			problem.Misconfigured, "without NUL"},
		"too much": {shelf{secret: creds(map[string]string{"a": strings.Repeat(canary, 6000)})}, a, "default",
			problem.Misconfigured, "65536"},
		"no right": {shelf{err: apierrors.NewForbidden(schema.GroupResource{}, "creds", errors.New(canary))}, a, "default",
			problem.Misconfigured, "may not read"},
		"no word":           {shelf{err: errors.New(canary)}, a, "default", problem.Unavailable, "reading Secret"},
		"another namespace": {shelf{secret: good}, a, "other", problem.Misconfigured, `sandboxes of namespace "other"`},
		"a name that is not open": {shelf{secret: good}, []*sandboxv1.SandboxSecret{ref("A", "identity", "a")}, "default",
			problem.Misconfigured, `"identity" is not`},
		"what is no name": {shelf{secret: good}, []*sandboxv1.SandboxSecret{ref("A", "../creds", "a")}, "default",
			problem.Invalid, "secrets[0].name"},
	} {
		rules, err := ParseRules([]string{"default/creds"})
		must.Succeed(t, err)
		got, err := New(rules, &tc.shelf).Read(t.Context(), tc.in, "red", tc.refs)
		p := problem.FromError(err)
		if got != nil || err == nil || p.Reason != tc.reason || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, %v, want %s with %q", name, len(got), err, tc.reason, tc.says)
		}
		if strings.Contains(fmt.Sprint(err), canary) {
			t.Errorf("%s: the error has the value", name)
		}
	}
	if fault := New(nil, &shelf{secret: good}).Permit("default", a); fault == nil || fault.Reason != problem.Misconfigured {
		t.Errorf("without rules: %v", fault)
	}
}
