// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
)

const (
	// secretReader is the access provider whose credentials are the token in a Secret. For other access providers, a program prints them,
	// which is not run here.
	secretReader = "secretreader"
	// execExtension is the extension with an access provider's parameters for one cluster.
	execExtension = "client.authentication.k8s.io/exec"
	// profileLabel on a Secret names the ClusterProfile that may use it. Without it, a writer of ClusterProfiles could have any token of the
	// namespace sent to a server.
	profileLabel = "x-k8s.io/cluster-profile"
)

// accessProvider has the used fields of a ClusterProfile's access provider.
type accessProvider struct {
	Name    string              `json:"name"`
	Cluster clientcmdv1.Cluster `json:"cluster"`
}

// clusterInventory returns the source of ClusterProfiles of the Cluster Inventory API, with the access provider secretreader of KEP-5339:
// the server and its CA are in the status, and the token is in a Secret of the consumer's namespace.
func clusterInventory() source {
	return source{
		kind:       schema.GroupVersionKind{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Kind: "ClusterProfile"},
		ownerLabel: profileLabel,
		kubeconfig: func(object *unstructured.Unstructured, read readSecret) ([]byte, error) {
			access, err := secretAccess(object)
			if err != nil {
				return nil, err
			}
			name, err := tokenSecret(access.Cluster.Extensions, object.GetName())
			if err != nil {
				return nil, err
			}
			secret, err := read(name)
			if err != nil {
				return nil, err
			}
			token := strings.TrimSpace(string(secret.Data["token"]))
			if token == "" {
				return nil, fmt.Errorf("%w: Secret %s has no key token", errRefused, name)
			}
			access.Cluster.Extensions = nil
			const only = "cluster"
			return json.Marshal(clientcmdv1.Config{
				APIVersion: "v1", Kind: "Config", CurrentContext: only,
				Clusters:  []clientcmdv1.NamedCluster{{Name: only, Cluster: access.Cluster}},
				AuthInfos: []clientcmdv1.NamedAuthInfo{{Name: only, AuthInfo: clientcmdv1.AuthInfo{Token: token}}},
				Contexts:  []clientcmdv1.NamedContext{{Name: only, Context: clientcmdv1.Context{Cluster: only, AuthInfo: only}}},
			})
		},
	}
}

// secretAccess returns how to reach a ClusterProfile's cluster with a Secret. The former field credentialProviders counts if the current
// one has none.
func secretAccess(object *unstructured.Unstructured) (*accessProvider, error) {
	var profile struct {
		Status struct {
			AccessProviders     []accessProvider `json:"accessProviders"`
			CredentialProviders []accessProvider `json:"credentialProviders"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &profile); err != nil {
		return nil, fmt.Errorf("%w: reading the status: %w", errRefused, err)
	}
	var others []string
	for _, access := range slices.Concat(profile.Status.AccessProviders, profile.Status.CredentialProviders) {
		if access.Name != secretReader {
			others = append(others, access.Name)
			continue
		}
		switch {
		case access.Cluster.Server == "":
			return nil, fmt.Errorf("%w: access provider %s has no server", errRefused, secretReader)
		case access.Cluster.InsecureSkipTLSVerify:
			return nil, fmt.Errorf("%w: access provider %s has insecure-skip-tls-verify, want certificate-authority-data", errRefused,
				secretReader)
		}
		return &access, nil
	}
	if len(others) > 0 {
		return nil, fmt.Errorf("%w: status.accessProviders has %q, which run programs here; want %s", errRefused, others, secretReader)
	}
	return nil, fmt.Errorf("%w: status.accessProviders is empty", errNotYet)
}

// tokenSecret returns the name of the Secret: the extension's clusterName, else the object's name.
func tokenSecret(extensions []clientcmdv1.NamedExtension, object string) (string, error) {
	for _, extension := range extensions {
		if extension.Name != execExtension {
			continue
		}
		var parameters struct {
			ClusterName string `json:"clusterName"`
		}
		if err := json.Unmarshal(extension.Extension.Raw, &parameters); err != nil {
			return "", fmt.Errorf("%w: reading extension %s: %w", errRefused, execExtension, err)
		}
		if parameters.ClusterName != "" {
			return parameters.ClusterName, nil
		}
	}
	return object, nil
}
