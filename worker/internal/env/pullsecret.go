// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"navix.sh/atoll/api/v1alpha1"
)

func (r *Reconciler) gatherPullSecret(ctx context.Context, o *observation) error {
	if !r.pullSecrets {
		return nil
	}
	key := types.NamespacedName{Namespace: o.Env.Namespace, Name: v1alpha1.EnvImagePullSecretName(o.Env.Name)}
	err := r.client.Get(ctx, key, &corev1.Secret{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("looking for Secret %s: %w", key.Name, err)
	}
	o.PullSecret = err == nil
	return nil
}

func envOfPullSecret(_ context.Context, obj client.Object) []reconcile.Request {
	name, ok := strings.CutPrefix(obj.GetName(), v1alpha1.ImagePullSecretNamePrefix)
	if !ok || name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
}
