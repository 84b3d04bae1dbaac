// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
)

// clusterAPI returns the source of Clusters of Cluster API, from version 1.11 on: a control plane provider, or a user, writes the Secret
// NAME-kubeconfig beside a Cluster.
//
// The user of these kubeconfigs is an administrator. The worker impersonates its own ServiceAccount with them. Its rights are then those of
// `atollctl cluster rbac`, and admission policies recognize it.
func clusterAPI(account string) source {
	return source{
		kind:       schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Cluster"},
		ownerLabel: "cluster.x-k8s.io/cluster-name",
		kubeconfig: func(object *unstructured.Unstructured, read readSecret) ([]byte, error) {
			// This field is never reset, unlike conditions, which describe the present.
			ready, _, err := unstructured.NestedBool(object.Object, "status", "initialization", "controlPlaneInitialized")
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errRefused, err)
			}
			if !ready {
				return nil, fmt.Errorf("%w: status.initialization.controlPlaneInitialized is not true", errNotYet)
			}
			secret, err := read(object.GetName() + "-kubeconfig")
			if err != nil {
				return nil, err
			}
			return actAs(secret, account)
		},
	}
}

// actAs returns a Secret's kubeconfig in which all users impersonate a ServiceAccount.
func actAs(secret *corev1.Secret, account string) ([]byte, error) {
	loaded, err := clientcmd.Load(secret.Data["value"])
	if err != nil {
		return nil, fmt.Errorf("%w: reading key value of Secret %s: %w", errRefused, secret.Name, err)
	}
	for _, user := range loaded.AuthInfos {
		user.Impersonate, user.ImpersonateUID, user.ImpersonateUserExtra = account, "", nil
		user.ImpersonateGroups = nil // the API server adds the ServiceAccount's groups
	}
	out, err := clientcmd.Write(*loaded)
	if err != nil {
		return nil, fmt.Errorf("%w: writing the kubeconfig of Secret %s: %w", errRefused, secret.Name, err)
	}
	return out, nil
}
