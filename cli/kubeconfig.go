// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"navix.sh/atoll/pkg/link"
)

func kubeconfigCommand(a *app) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "kubeconfig CLUSTER",
		Short: "Print a kubeconfig that reaches a cluster's API server through the hub",
		Long: `Print a kubeconfig that reaches a cluster's API server through the hub, for kubectl, Helm and k9s.

The hub must run with --clusters-proxy, and the cluster's worker with --serve-kubernetes. You act in the cluster as yourself, by the name
that the hub knows you by; the cluster's RBAC says what you may do. No token is in the file: the client asks atollctl for it, which takes
it from your context or --token-file. A token of --token, or ATOLL_TOKEN, is written into the file.`,
		Example: `  atollctl kubeconfig east > east.kubeconfig
  kubectl --kubeconfig east.kubeconfig get pods`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := a.kubeconfig(args[0], namespace)
			if err != nil {
				return err
			}
			text, err := clientcmd.Write(*config)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the kubeconfig's context")
	cmd.AddCommand(credentialCommand(a))
	return cmd
}

// credentialCommand is what kubectl runs.
func credentialCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "credential",
		Short:   "Print the token for the hub as an ExecCredential, for clients of Kubernetes",
		Example: "  atollctl kubeconfig credential --context prod",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := a.bearer(cmd.Context())
			if err != nil {
				return err
			}
			if token == "" {
				return usagef("there is no token: want --context or --token-file")
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(clientauthv1.ExecCredential{
				TypeMeta: metav1.TypeMeta{APIVersion: clientauthv1.SchemeGroupVersion.String(), Kind: "ExecCredential"},
				Status:   &clientauthv1.ExecCredentialStatus{Token: token},
			})
		},
	}
}

func (a *app) kubeconfig(cluster, namespace string) (*clientcmdapi.Config, error) {
	if !link.ValidClusterID(cluster) {
		return nil, usagef("CLUSTER %q is not valid, want 1 to 30 of a-z, 0-9 and -, beginning with a letter and not ending with -", cluster)
	}
	if err := a.resolve(); err != nil {
		return nil, err
	}
	tls, err := a.tlsConfig() // checks the certificates as well
	if err != nil {
		return nil, err
	}
	if tls == nil {
		return nil, usagef("--server %s is reached without TLS: clients of Kubernetes send no token then; want https://HOST:PORT", a.server)
	}
	user, err := a.kubeconfigUser()
	if err != nil {
		return nil, err
	}
	server := &clientcmdapi.Cluster{Server: "https://" + a.server + "/v1/clusters/" + cluster + "/proxy"}
	if server.CertificateAuthorityData = []byte(a.caData); a.caFile != "" {
		if server.CertificateAuthorityData, err = os.ReadFile(a.caFile); err != nil {
			return nil, usagef("reading --ca-file: %w", err)
		}
	}
	name := "atoll-" + cluster
	config := clientcmdapi.NewConfig()
	config.Clusters[name], config.AuthInfos[name], config.CurrentContext = server, user, name
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	return config, nil
}

// kubeconfigUser returns how a client of the kubeconfig obtains its token.
func (a *app) kubeconfigUser() (*clientcmdapi.AuthInfo, error) {
	args := []string{"kubeconfig", "credential"}
	switch {
	case a.tokenFile != "":
		path, err := filepath.Abs(a.tokenFile)
		if err != nil {
			return nil, usagef("--token-file: %w", err)
		}
		args = append(args, "--token-file", path)
	case a.side != nil && (a.side.Exec != nil || a.side.OIDC != nil):
		args = append(args, "--context", a.side.Name)
	case a.token != "":
		return &clientcmdapi.AuthInfo{Token: a.token}, nil
	default:
		return nil, usagef("the hub asks for a token: want --context, --token-file or --token")
	}
	return &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: clientauthv1.SchemeGroupVersion.String(), Command: ownCommand(), Args: args,
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		InstallHint:     "atollctl is not where this kubeconfig expects it",
	}}, nil
}

// ownCommand returns the name of this program if PATH resolves to it, else its path.
func ownCommand() string {
	own, err := os.Executable()
	if err != nil {
		return "atollctl"
	}
	if found, err := exec.LookPath("atollctl"); err == nil {
		a, _ := os.Stat(own)
		b, _ := os.Stat(found)
		if a != nil && b != nil && os.SameFile(a, b) {
			return "atollctl"
		}
	}
	return cmp.Or(own, "atollctl")
}
