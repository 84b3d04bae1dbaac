// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenLifetime is longer than any plane runs.
const tokenLifetime = 24 * time.Hour

// ServiceAccountKubeconfig writes a kubeconfig with a token of a ServiceAccount, which must exist, and returns its path. A
// program with it has only that ServiceAccount's permissions.
func (p *Plane) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	client, err := kubernetes.NewForConfig(p.Config())
	if err != nil {
		return "", fmt.Errorf("building a client: %w", err)
	}
	seconds := int64(tokenLifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token for service account %s/%s: %w", namespace, name, err)
	}
	path := p.file("serviceaccount-" + namespace + "-" + name + ".kubeconfig")
	auth := &clientcmdapi.AuthInfo{Token: token.Status.Token}
	if err := writeKubeconfig(path, p.Name, p.server(), p.caPEM, auth); err != nil {
		return "", err
	}
	return path, nil
}

// Kubectl runs kubectl as cluster administrator and returns what it printed to standard output.
func (p *Plane) Kubectl(ctx context.Context, args ...string) (string, error) {
	return p.KubectlInput(ctx, nil, args...)
}

// KubectlInput is Kubectl with standard input, for "apply -f -".
func (p *Plane) KubectlInput(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := p.KubectlCommand(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// KubectlCommand prepares kubectl as cluster administrator, which ends with ctx.
func (p *Plane) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(p.binDir, "kubectl"), args...)
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+p.Kubeconfig(),
		// Not below the home directory, where it would stay.
		"KUBECACHEDIR="+p.file("kubectl-cache"),
	)
	return cmd
}
