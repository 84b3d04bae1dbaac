// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	_ "navix.sh/atoll/charts" // a test depends on the files that helm reads
)

// Helm runs helm. Its methods may be called concurrently.
type Helm struct {
	binary, root, home string
}

// New finds helm, or builds it, which takes minutes the first time. home receives its files.
func New(ctx context.Context, home string) (*Helm, error) {
	root, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "navix.sh/atoll")
	if err != nil {
		return nil, fmt.Errorf("finding the checkout: %w", err)
	}
	// -n prints the built tool's path instead of running it; because `go tool` costs half a second a call.
	binary, err := output(ctx, "go", "tool", "-modfile="+filepath.Join(root, "tools", "go.mod"), "-n", "helm")
	if err != nil {
		return nil, fmt.Errorf("building helm: %w", err)
	}
	return &Helm{binary: binary, root: root, home: home}, nil
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// Path is the program's path.
func (h *Helm) Path() string { return h.binary }

// Chart is the folder of a chart of this checkout.
func (h *Helm) Chart(name string) string { return filepath.Join(h.root, "charts", name) }

// Release describes what to render or install.
type Release struct {
	// Name of the release, and its Namespace.
	Name, Namespace string
	// Chart is a folder or an archive.
	Chart string
	// Values in YAML.
	Values string
}

// Lint checks a chart with values, as `helm lint --strict` does.
func (h *Helm) Lint(ctx context.Context, chart, values string) error {
	_, err := h.run(ctx, "", values, "lint", "--strict", chart, "--values", "-")
	return err
}

// Package creates an archive of a chart in dir under another version, to upgrade to, and returns its path. Chart and
// application get the same version.
func (h *Helm) Package(ctx context.Context, chart, version, dir string) (string, error) {
	out, err := h.run(ctx, "", "", "package", chart, "--version", version, "--app-version", version, "--destination", dir)
	if err != nil {
		return "", err
	}
	_, path, found := strings.Cut(strings.TrimSpace(out), "saved it to: ")
	if !found {
		return "", fmt.Errorf("packaging %s: helm does not say where: %s", chart, out)
	}
	return path, nil
}

// Template renders a release. Args are further arguments, such as --api-versions.
func (h *Helm) Template(ctx context.Context, r Release, args ...string) (Objects, error) {
	args = append([]string{"template", r.Name, r.Chart, "--namespace", r.Namespace, "--values", "-"}, args...)
	out, err := h.run(ctx, "", r.Values, args...)
	if err != nil {
		return nil, err
	}
	return decode(out)
}

// Cluster is helm in one cluster.
type Cluster struct {
	helm       *Helm
	kubeconfig string
}

// In returns helm for the cluster of a kubeconfig file.
func (h *Helm) In(kubeconfig string) *Cluster { return &Cluster{helm: h, kubeconfig: kubeconfig} }

// patience is how long helm waits for a release to be ready.
const patience = 2 * time.Minute

// Install installs a release, creates its namespace if missing, and waits until all of it is ready. It returns helm's output,
// notes included.
func (c *Cluster) Install(ctx context.Context, r Release, args ...string) (string, error) {
	args = append([]string{"install", r.Name, r.Chart, "--namespace", r.Namespace, "--create-namespace",
		"--values", "-", "--wait", "--timeout", patience.String()}, args...)
	return c.helm.run(ctx, c.kubeconfig, r.Values, args...)
}

// Upgrade upgrades a release to its current chart and values, and waits. Without values, helm would use the previous
// revision's.
func (c *Cluster) Upgrade(ctx context.Context, r Release, args ...string) (string, error) {
	args = append([]string{"upgrade", r.Name, r.Chart, "--namespace", r.Namespace, "--reset-values",
		"--values", "-", "--wait", "--timeout", patience.String()}, args...)
	return c.helm.run(ctx, c.kubeconfig, r.Values, args...)
}

// Rollback takes a release back to a revision, counted from 1, and waits.
func (c *Cluster) Rollback(ctx context.Context, r Release, revision int) error {
	_, err := c.helm.run(ctx, c.kubeconfig, "", "rollback", r.Name, fmt.Sprint(revision), "--namespace", r.Namespace,
		"--wait", "--timeout", patience.String())
	return err
}

// Uninstall removes a release and waits until its objects are gone.
func (c *Cluster) Uninstall(ctx context.Context, r Release) error {
	_, err := c.helm.run(ctx, c.kubeconfig, "", "uninstall", r.Name, "--namespace", r.Namespace,
		"--wait", "--timeout", patience.String())
	return err
}

// Manifest returns the current objects of a release.
func (c *Cluster) Manifest(ctx context.Context, r Release) (Objects, error) {
	out, err := c.helm.run(ctx, c.kubeconfig, "", "get", "manifest", r.Name, "--namespace", r.Namespace)
	if err != nil {
		return nil, err
	}
	return decode(out)
}

// run returns helm's standard output. The error has its standard error.
func (h *Helm) run(ctx context.Context, kubeconfig, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, h.binary, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + h.home, "KUBECONFIG=" + kubeconfig,
		"HELM_CACHE_HOME=" + filepath.Join(h.home, "cache"), "HELM_CONFIG_HOME=" + filepath.Join(h.home, "config"),
		"HELM_DATA_HOME=" + filepath.Join(h.home, "data"),
	}
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err,
			strings.TrimSpace(stderr.String()+stdout.String()))
	}
	return stdout.String(), nil
}
