// SPDX-License-Identifier: Apache-2.0

package secretenv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/worker/internal/hooks"
)

const (
	// readTimeout bounds the reads of one claim.
	readTimeout = 5 * time.Second
	// maxBytes bounds names and values of one claim, as it does for envVars.
	maxBytes = 64 << 10
)

// Reader reads a Secret live. It needs the right to get Secrets, which the chart grants if sandboxSecrets allows some.
type Reader interface {
	Secret(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error)
}

// Source reads values for claims. A nil Source has none.
type Source struct {
	rules  Rules
	reader Reader
}

// New returns a Source, or nil without rules.
func New(rules Rules, reader Reader) *Source {
	if len(rules) == 0 {
		return nil
	}
	return &Source{rules: rules, reader: reader}
}

// Permit returns why references are refused regardless of the Secrets in the cluster, or nil if they are not.
func (s *Source) Permit(namespace string, refs []*sandboxv1.SandboxSecret) *problem.Error {
	if len(refs) == 0 {
		return nil
	}
	if faults := validate.Secrets(refs); len(faults) > 0 {
		return problem.InvalidFields(faults...)
	}
	if s == nil {
		return problem.New(problem.Misconfigured,
			"secrets: this cluster's worker reads no Secrets for sandboxes (chart value sandboxSecrets, flag --sandbox-secrets)")
	}
	for i, ref := range refs {
		if !s.rules.allow(namespace, ref.GetName()) {
			return problem.New(problem.Misconfigured, "secrets[%d].name: %q is not a Secret that sandboxes of namespace %q may have here; "+
				"the platform team allows names (chart value sandboxSecrets, flag --sandbox-secrets)", i, ref.GetName(), namespace)
		}
	}
	return nil
}

// Read returns the variables of the references, for a sandbox of a namespace and a team.
func (s *Source) Read(ctx context.Context, namespace, team string, refs []*sandboxv1.SandboxSecret) (map[string]string, error) {
	if fault := s.Permit(namespace, refs); fault != nil {
		return nil, fault
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	read, variables, size := map[string]*corev1.Secret{}, map[string]string{}, 0
	for i, ref := range refs {
		secret, known := read[ref.GetName()]
		if !known {
			var err error
			if secret, err = s.get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.GetName()}); err != nil {
				return nil, err
			}
			read[ref.GetName()] = secret
		}
		value, err := valueOf(secret, ref, namespace, team)
		if err != nil {
			return nil, problem.New(problem.Misconfigured, "secrets[%d]: %w", i, err)
		}
		if size += len(ref.GetEnv()) + len(value); size > maxBytes {
			return nil, problem.New(problem.Misconfigured, "secrets: %d bytes or more, want at most %d of names and values", size, maxBytes)
		}
		variables[ref.GetEnv()] = value
	}
	return variables, nil
}

// get returns a Secret, or nil if it does not exist.
func (s *Source) get(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	secret, err := s.reader.Secret(ctx, name)
	switch {
	case err == nil:
		return secret, nil
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return nil, problem.New(problem.Misconfigured, "secrets: the worker may not read Secrets in namespace %q (chart value sandboxSecrets)",
			name.Namespace)
	default:
		return nil, problem.New(problem.Unavailable, "reading Secret %q: %w", name.Name, errors.New(string(apierrors.ReasonForError(err)))).
			WithRetryAfter(problem.RetrySoon)
	}
}

// valueOf returns the value of a reference. No error contains the value.
func valueOf(secret *corev1.Secret, ref *sandboxv1.SandboxSecret, namespace, team string) (string, error) {
	if secret == nil || !hooks.IsFor(secret, team) {
		return "", fmt.Errorf("there is no Secret %q in namespace %q for sandboxes of this team", ref.GetName(), namespace)
	}
	value, ok := secret.Data[ref.GetKey()]
	switch {
	case !ok:
		return "", fmt.Errorf("Secret %q has no key %q", ref.GetName(), ref.GetKey())
	case !utf8.Valid(value) || slices.Contains(value, 0):
		return "", fmt.Errorf("key %q of Secret %q is not text without NUL, as a variable's value must be", ref.GetKey(), ref.GetName())
	}
	return string(value), nil
}
