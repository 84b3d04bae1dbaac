// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/hook"
	"navix.sh/atoll/worker/internal/sandbox"
)

// errSecret means that a Secret which a hook refers to cannot be used. A retry does not help.
var errSecret = fmt.Errorf("%w: a Secret that the hook refers to", errHopeless)

// Secrets reads a Secret live. It is nil if hooks may refer to none.
type Secrets interface {
	Secret(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error)
}

// Secret implements Secrets. It needs the right to get Secrets, which the chart grants only with hookSecrets.
func (c *Cluster) Secret(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	return c.client.Secrets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
}

// resolve returns a step with the values that its request refers to. The values exist for one try, and in no other place.
func (r *Runner) resolve(ctx context.Context, pod *corev1.Pod, s *Step) (*Step, error) {
	if s.HTTP == nil || s.HTTP.Body.From == nil && !slices.ContainsFunc(slices.Collect(maps.Values(s.HTTP.Headers)), isReference) {
		return s, nil
	}
	resolved, request := *s, *s.HTTP
	resolved.HTTP = &request
	var err error
	if request.Body, err = r.read(ctx, pod, request.Body); err != nil {
		return nil, err
	}
	request.Headers = map[string]hook.Value{}
	for name, value := range s.HTTP.Headers {
		if request.Headers[name], err = r.read(ctx, pod, value); err != nil {
			return nil, err
		}
		if value.From != nil && !hook.IsHeaderValue(request.Headers[name].Text) {
			return nil, fmt.Errorf("%w: %s is not one line of text, as a header must be", errSecret, value.From)
		}
	}
	return &resolved, nil
}

func isReference(v hook.Value) bool { return v.From != nil }

// read returns the text of a value.
func (r *Runner) read(ctx context.Context, pod *corev1.Pod, v hook.Value) (hook.Value, error) {
	if v.From == nil {
		return v, nil
	}
	if r.opts.Secrets == nil {
		return v, fmt.Errorf("%w: this cluster's worker reads no Secrets for hooks (chart value hookSecrets, flag --hook-secrets)", errSecret)
	}
	found, err := r.opts.Secrets.Secret(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: v.From.Name})
	switch {
	case apierrors.IsForbidden(err):
		return v, fmt.Errorf("%w: the worker may not read Secrets in namespace %s (chart value hookSecrets)", errSecret, pod.Namespace)
	case apierrors.IsNotFound(err):
		found = nil
	case err != nil:
		return v, fmt.Errorf("%w: reading %s: %w", errUnsure, v.From, errors.New(string(apierrors.ReasonForError(err))))
	}
	text, err := textOf(found, *v.From, sandbox.Read(pod).Team)
	return hook.Value{Text: text}, err
}

// textOf returns the value of a Secret's key for a team. A Secret that is not for hooks, or not for the team, counts as missing, because a
// caller must not learn which Secrets a namespace has.
func textOf(secret *corev1.Secret, of hook.SecretKey, team string) (string, error) {
	if secret == nil || secret.Labels[v1alpha1.HookSecretLabelKey] != "true" || !IsFor(secret, team) {
		return "", fmt.Errorf("%w: there is no Secret %q with the label %s=true for hooks of this team", errSecret, of.Name,
			v1alpha1.HookSecretLabelKey)
	}
	value, ok := secret.Data[of.Key]
	switch {
	case !ok:
		return "", fmt.Errorf("%w: Secret %q has no key %q", errSecret, of.Name, of.Key)
	case len(value) > hook.MaxSize:
		return "", fmt.Errorf("%w: %s has %d bytes, want at most %d", errSecret, of, len(value), hook.MaxSize)
	}
	return string(value), nil
}

// IsFor reports whether hooks and sandboxes of a team may use a Secret. All teams may, unless an annotation lists the teams.
func IsFor(secret *corev1.Secret, team string) bool {
	teams, limited := secret.Annotations[v1alpha1.HookSecretTeamsAnnotationKey]
	return !limited || team != "" &&
		slices.ContainsFunc(strings.Split(teams, ","), func(t string) bool { return strings.TrimSpace(t) == team })
}
