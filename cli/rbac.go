// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"navix.sh/atoll/charts"
	"navix.sh/atoll/pkg/link"
)

// remoteSide describes what to render for a cluster whose worker is hosted elsewhere.
type remoteSide struct {
	cluster, namespace                  string
	crds, policies, pullSecrets, cilium bool
	serveKubernetes                     bool
}

func (a *app) rbacCommand() *cobra.Command {
	r := remoteSide{}
	cmd := &cobra.Command{
		Use:   "rbac ID",
		Short: "Print what a cluster needs whose worker is hosted elsewhere: accounts and their rights",
		Long: `Print the namespace, the ServiceAccounts and the roles of a worker for a cluster that is served from another one, for kubectl
apply. They are those of the worker's chart, without the rights to its certificate, which stays in the hosting cluster.

The hosting worker uses a token of the ServiceAccount atoll-worker: "kubectl create token".`,
		Example: `  atollctl cluster rbac east --crds --policies | kubectl --context east apply --server-side -f -
  kubectl --context east -n atoll-system create token atoll-worker --duration 720h`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.cluster = args[0]
			return r.print(cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.namespace, "worker-namespace", "atoll-system",
		"namespace of the worker's lease, state and ServiceAccounts in that cluster")
	flags.BoolVar(&r.crds, "crds", false, "print the CRDs as well")
	flags.BoolVar(&r.policies, "policies", false, "print the admission policies as well")
	flags.BoolVar(&r.pullSecrets, "pull-secrets", false, "include the right to list Secrets, as pullSecrets of the chart")
	flags.BoolVar(&r.serveKubernetes, "serve-kubernetes", false,
		"include the account that impersonates callers of the hub, as serveKubernetes of the chart")
	flags.BoolVar(&r.cilium, "cilium", false, "include the rights to Cilium's network policies")
	return cmd
}

func (r remoteSide) print(w io.Writer) error {
	if !link.ValidClusterID(r.cluster) {
		return usagef("ID %q is not valid, want 1 to 30 of a-z, 0-9 and -, beginning with a letter and not ending with -", r.cluster)
	}
	if faults := validation.IsDNS1123Label(r.namespace); len(faults) > 0 {
		return usagef("--worker-namespace %q is not valid: %s", r.namespace, faults[0])
	}
	files, err := charts.Worker()
	if err != nil {
		return err
	}
	folders := []string{"rbac"}
	if r.crds {
		folders = append(folders, "crds")
	}
	if r.policies {
		folders = append(folders, "policies")
	}
	for _, folder := range folders {
		entries, err := fs.ReadDir(files, folder)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if r.leavesOut(entry.Name()) {
				continue
			}
			if err := r.printFile(w, files, folder+"/"+entry.Name()); err != nil {
				return err
			}
		}
	}
	if r.serveKubernetes {
		return r.printFile(w, files, "optional/kubernetes_proxy.yaml")
	}
	return nil
}

func (r remoteSide) printFile(w io.Writer, files fs.FS, path string) error {
	text, err := fs.ReadFile(files, path)
	if err != nil {
		return err
	}
	filled := strings.NewReplacer("atoll-system", r.namespace, "CLUSTER_ID", r.cluster).Replace(string(text))
	_, err = fmt.Fprintf(w, "---\n%s\n", strings.TrimPrefix(strings.TrimSpace(filled), "---\n"))
	return err
}

// leavesOut reports whether to omit a file. The permissions for the certificate are always omitted: the certificate is not in that cluster.
func (r remoteSide) leavesOut(file string) bool {
	switch file {
	case "identity.yaml":
		return true
	case "pull_secrets.yaml":
		return !r.pullSecrets
	case "cilium.yaml":
		return !r.cilium
	}
	return false
}
